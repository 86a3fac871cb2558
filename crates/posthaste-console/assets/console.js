// What a page does by itself: keeps its figures up to date, and listens to the keyboard. Everything
// can be read and done without it.
"use strict";

const all = (what, within = document) => Array.from(within.querySelectorAll(what));
const live = document.getElementById("live");
// Where a reverse proxy serves the console, such as /posthaste.
const root = document.body.dataset.live?.replace(/\/events$/, "") ?? "";
const boxes = () => all("tbody input[type=checkbox]");
const selected = () => boxes().filter((box) => box.checked).length;
const whole = document.getElementById("all");

// Figures. Nothing moves while something is selected: what came meanwhile is shown afterwards.
const cells = new Map(all("[data-cell]").map((cell) => [cell.dataset.cell, cell]));
const kept = new Set(["n", "wide", "state"]);
const waiting = new Map();
let state = "as of page load";

function showState() {
  if (!live) return;
  const count = selected();
  const isStale = document.body.classList.contains("stale");
  live.textContent = count ? `held still while ${count} ${count > 1 ? "are" : "is"} selected`
    : isStale ? "not live: no answer from the database" : state;
  live.classList.toggle("on", !count && !isStale && state.startsWith("live"));
  live.classList.toggle("held", count > 0);
  const says = document.getElementById("selected");
  if (says) says.textContent = count ? `${count} selected.` : "Select jobs to act on them.";
  if (!whole) return;
  whole.checked = count > 0 && count === boxes().length;
  whole.indeterminate = count > 0 && !whole.checked;
}

function showCell([key, text, name]) {
  const cell = cells.get(key);
  if (cell?.tagName === "PROGRESS") {
    if (cell.hasAttribute("max")) cell.value = Number(text);
    return;
  }
  const isSame = cell?.textContent.trim() === text && (!name || cell.classList.contains(name));
  if (!cell || isSame) return;
  cell.textContent = text;
  const classes = Array.from(cell.classList).filter((one) => kept.has(one));
  cell.className = classes.concat(name ? [name] : []).join(" ");
  void cell.offsetWidth;
  // An action that ended, or rests, has another page.
  if (/^bulk\.\d+\.state$/.test(key) && document.querySelector("progress")) location.reload();
  if (key !== "as_of" && !/\.(seen|reported|fails)$/.test(key)) cell.classList.add("new");
}

function showVerdicts(verdicts) {
  const place = document.getElementById("verdicts");
  if (!place) return;
  place.replaceChildren(...verdicts.map(([level, id, what, then, link]) => {
    const sentence = document.createElement("div");
    const strong = document.createElement("strong");
    strong.textContent = what;
    sentence.append(strong);
    if (then) {
      const more = document.createElement("p");
      more.textContent = then;
      sentence.append(more);
    }
    const verdict = document.createElement("div");
    verdict.className = `verdict ${level}`;
    verdict.dataset.id = id;
    verdict.append(sentence);
    if (link) {
      const look = document.createElement("a");
      look.className = "button";
      look.href = root + link;
      look.textContent = "View";
      verdict.append(look);
    }
    return verdict;
  }));
}

// A fault stands in the place of the verdicts: what they said is of the past, and so are all figures.
function showFault(text) {
  const fault = document.getElementById("fault");
  if (text && document.getElementById("verdicts")) showVerdicts([["bad", "", text, "", ""]]);
  else fault.hidden = !text;
  fault.textContent = text;
  document.body.classList.toggle("stale", Boolean(text));
  showState();
}

const shows = {
  cells: (changed) => changed.forEach(showCell),
  verdicts: showVerdicts,
  fault: showFault,
  // Lines came or went: where they are listed, the page is made anew.
  lines: () => document.querySelector("tr [data-cell]") && !typing() && location.reload(),
};

// Pages show UTC; a tooltip has the time of this machine. A time without a day is of today.
function showLocalTimes() {
  for (const time of all("time")) {
    const [, day, clock] = time.textContent.match(/^(?:(\d{4}-\d\d-\d\d) )?(\d\d:\d\d:\d\d)$/) ?? [];
    if (!clock) continue;
    const at = new Date(`${day ?? new Date().toISOString().slice(0, 10)}T${clock}Z`);
    time.dateTime = at.toISOString();
    time.title = `${at.toLocaleString(undefined, { timeZoneName: "short" })}`;
  }
}

// Charts come anew with each sample.
async function showCharts() {
  const charts = document.getElementById("charts");
  if (!charts || document.hidden || selected()) return;
  const answer = await fetch(location.href).catch(() => null);
  if (!answer?.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const news = page.getElementById("charts");
  if (news && !charts.contains(document.activeElement)) charts.replaceWith(news);
}

function release() {
  if (selected()) return;
  for (const [event, data] of waiting) shows[event](data);
  waiting.clear();
}

// A page whose session has ended leads to the form for the token.
async function signIn() {
  const answer = await fetch(location.href).catch(() => null);
  if (answer?.status === 401) location.reload();
}

// A browser has six connections for all pages of a server: a page that nobody sees takes none.
function listen(address) {
  let events;
  const open = () => {
    if (events || document.hidden) return;
    events = new EventSource(address);
    for (const event of Object.keys(shows)) {
      events.addEventListener(event, ({ data }) => {
        const news = JSON.parse(data);
        const before = waiting.get(event);
        waiting.set(event, event === "cells" && before ? before.concat(news) : news);
        release();
      });
    }
    events.onopen = () => { state = "live, every 2 s"; showState(); };
    events.onerror = () => {
      state = "not live: no connection";
      showState();
      if (events?.readyState === EventSource.CLOSED) signIn();
    };
  };
  const close = () => { events?.close(); events = undefined; };
  open();
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  // A browser that keeps the page, to go back to it, would keep its connection for a minute.
  addEventListener("pagehide", close);
  addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
}

// The keyboard.
let here = -1;
let goes = false;
const rows = () => all("tr[data-row]");
const typing = () => /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName)
  && document.activeElement.type !== "checkbox";

function move(by) {
  const lines = rows();
  if (!lines.length) return;
  here = Math.min(Math.max(here + by, 0), lines.length - 1);
  lines.forEach((line, at) => line.classList.toggle("here", at === here));
  lines[here].scrollIntoView({ block: "nearest" });
}

function select() {
  const box = rows()[here]?.querySelector("input[type=checkbox]");
  if (!box) return;
  box.checked = !box.checked;
  changed();
}

// Without a selection it is the line one stands on; a button of another line is none of ours.
function act(key) {
  const wanted = `button[data-key="${key}"]`;
  const button = rows()[here]?.querySelector(wanted)
    ?? all(wanted).find((one) => !one.closest("tr"));
  if (!button) return;
  let box;
  if (boxes().length && !selected()) {
    box = rows()[here]?.querySelector("input[type=checkbox]");
    if (!box) return;
    box.checked = true;
    changed();
  }
  if (button.dataset.question) ask(button, box);
  else button.click();
}

// A key is pressed by mistake more easily than a button.
function ask(button, box) {
  const dialog = document.getElementById("confirm-dialog");
  const count = selected();
  dialog.querySelector("p").textContent = count
    ? `Cancel ${count} selected ${count > 1 ? "jobs" : "job"}?` : button.dataset.question;
  dialog.returnValue = "";
  dialog.onclose = () => {
    if (dialog.returnValue === "yes") button.click();
    else if (box) { box.checked = false; changed(); }
  };
  dialog.showModal();
}

// Only keys that do something on this page.
function showKeys() {
  const used = { x: "tbody input[type=checkbox]", "/": "#filter" };
  for (const key of all("#keys dt[data-for]")) {
    const { for: letter } = key.dataset;
    key.hidden = !document.querySelector(used[letter] ?? `[data-key="${letter}"]`);
    key.nextElementSibling.hidden = key.hidden;
  }
  document.getElementById("keys").showModal();
}

function changed() {
  showState();
  release();
}

const keys = {
  j: () => move(1),
  k: () => move(-1),
  x: select,
  r: () => act("r"),
  c: () => act("c"),
  t: () => act("t"),
  g: () => { goes = true; },
  "/": () => document.getElementById("filter")?.focus(),
  "?": showKeys,
  Enter: () => rows()[here]?.querySelector("a")?.click(),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    const dialog = document.querySelector("dialog[open]");
    if (dialog) {
      dialog.close();
      return;
    }
    boxes().forEach((box) => { box.checked = false; });
    document.activeElement?.blur();
    changed();
    return;
  }
  if (typing() || document.querySelector("dialog[open]")) return;
  if (goes) {
    goes = false;
    document.querySelector(`[data-go="${CSS.escape(event.key)}"]`)?.click();
    event.preventDefault();
    return;
  }
  const isLink = /^(A|BUTTON|SUMMARY)$/.test(document.activeElement?.tagName);
  const key = Object.hasOwn(keys, event.key) ? keys[event.key] : null;
  if (!key || (event.key === "Enter" && isLink)) return;
  event.preventDefault();
  key();
});
document.addEventListener("change", (event) => {
  if (event.target === whole) boxes().forEach((box) => { box.checked = whole.checked; });
  if (event.target.type === "checkbox") changed();
});

if (whole) whole.hidden = false;

showLocalTimes();
showState();
if (document.body.dataset.live) listen(document.body.dataset.live);
if (document.getElementById("charts")) setInterval(showCharts, 60000);
