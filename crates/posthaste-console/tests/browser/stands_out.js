// What makes this page wider than its window.
const width = window.innerWidth;
if (document.documentElement.scrollWidth <= width) return [];
const scrolls = (one) => one.parentElement?.closest(".scroll, nav");
return Array.from(document.querySelectorAll("body *"))
  .filter((one) => one.getBoundingClientRect().right > width && !scrolls(one))
  .map((one) => one.outerHTML.slice(0, 160));
