// How search orders its results: first the pages that have the words in their title, and solutions last.
const asked = (new URLSearchParams(window.location.search).get("q") ?? "").toLowerCase();

var Scorer = {
  score: ([page, title, anchor, description, score]) => {
    if (page.startsWith("notebooks/solutions/")) return score - 100;
    return title.toLowerCase().includes(asked) ? score + 100 : score;
  },
  // What follows is as Sphinx has it.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
