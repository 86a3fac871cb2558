"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const plots = document.getElementById("plots");
const HEIGHT = 260;
let drawn = [];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function bands(plot) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.fillStyle = colour("--hold");
  for (const [from, to] of data.holds) {
    const left = Math.max(plot.valToPos(from, "x", true), bbox.left);
    const right = Math.min(plot.valToPos(to, "x", true), bbox.left + bbox.width);
    if (right > left) ctx.fillRect(left, bbox.top, right - left, bbox.height);
  }
  ctx.restore();
}

function short(value) {
  if (value == null) return "–";
  if (value >= 1e6) return +(value / 1e6).toFixed(1) + "M";
  if (value >= 1e4) return +(value / 1e3).toFixed(1) + "k";
  return String(+value.toPrecision(3));
}

function options(chart, width) {
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1 } };
  return {
    width, height: HEIGHT,
    cursor: { sync: { key: "run" } },
    scales: { x: { time: false }, y: chart.log
      ? { distr: 3, log: 10 } : { range: (_, low, high) => [0, Math.max(high * 1.05, 1)] } },
    axes: [
      { ...axis, values: (_, ticks) => ticks.map((tick) => tick + " s") },
      { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => tick == null ? "" : short(tick)) },
    ],
    series: [
      { label: "time", value: (_, at) => at == null ? "–" : at + " s" },
      ...data.names.map((name, at) => ({
        label: name, stroke: colour("--c" + at % 10), width: 2, spanGaps: true,
        points: { show: false }, value: (_, value) => short(value),
      })),
    ],
    hooks: { drawClear: [bands] },
  };
}

function draw() {
  for (const plot of drawn) plot.destroy();
  drawn = [];
  plots.replaceChildren();
  for (const chart of data.charts) {
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    caption.textContent = chart.title;
    figure.append(caption);
    plots.append(figure);
    const plot = new uPlot(options(chart, plots.clientWidth), [data.at, ...chart.series], figure);
    plot.root.querySelector("canvas").setAttribute("role", "img");
    plot.root.querySelector("canvas").setAttribute("aria-label", chart.title);
    drawn.push(plot);
  }
}

draw();
// A canvas keeps the colours and the width it was drawn with.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
let width = plots.clientWidth;
addEventListener("resize", () => {
  if (plots.clientWidth === width) return;
  width = plots.clientWidth;
  for (const plot of drawn) plot.setSize({ width, height: HEIGHT });
});
