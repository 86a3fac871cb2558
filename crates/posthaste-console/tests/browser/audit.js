// What axe-core finds in this page: one line for each rule that is broken.
const [rules, done] = arguments;
// It would leave out what is of one letter, as figures are.
const contrast = {
  ignoreUnicode: true, ignoreLength: true, ignorePseudo: false, pseudoSizeThreshold: 0.25,
  boldValue: 700, boldTextPt: 14, largeTextPt: 18,
  contrastRatio: { normal: { expected: 4.5 }, large: { expected: 3 } },
};
axe.configure({ checks: [{ id: "color-contrast", options: contrast }] });
// A place is described by its HTML; nothing is fetched once more.
const options = { resultTypes: ["violations"], selectors: false, preload: false };
if (rules.length) options.runOnly = { type: "rule", values: rules };
const places = (nodes) => nodes.slice(0, 4).map(({ html, failureSummary }) =>
  `${html.slice(0, 160)}: ${failureSummary.replace(/\s+/g, " ").slice(0, 300)}`);
axe.run(document, options).then(
  ({ violations }) => done(violations.map(({ id, help, nodes }) =>
    [`${id}: ${help} (${nodes.length})`, ...places(nodes)].join("\n  "))),
  (error) => done([`axe-core failed: ${error}`]),
);
