// How search orders its results: pages that have the words in a title, then the pages that list errors and questions,
// then all other pages, and solutions last.
const guides = ["docs/errors", "docs/questions"];
let asked = (new URLSearchParams(window.location.search).get("q") ?? "").toLowerCase().trim();

// A pasted line of output names a file, a rank and numbers, which are not on any page. Search then looks for the
// message that the line contains: the heading of the errors with the largest share of its words in the line.
const wordsOf = (text) => text.toLowerCase().replace(/\d+/g, "").match(/[a-z_]+/g) ?? [];

const messageIn = (line) => {
  const { alltitles, docnames } = Search._index;
  const pasted = new Set(wordsOf(line));
  let best = { heading: null, share: 0.75, length: 0 };
  for (const [heading, places] of Object.entries(alltitles)) {
    if (!places.some(([page, id]) => docnames[page] === "docs/errors" && id !== null)) continue;
    const words = wordsOf(heading);
    const share = words.filter((word) => pasted.has(word)).length / words.length;
    if (share > best.share || (share === best.share && words.length > best.length)) {
      best = { heading, share, length: words.length };
    }
  }
  return best.heading;
};

const searchFor = Search.query;
Search.query = (line) => {
  const words = messageIn(line) ?? line;
  asked = words.toLowerCase().trim();
  searchFor(words);
};

// Sphinx leads to a heading only if the words are half of it or more, and part of an error message is less.
const leadToHeading = (result) => {
  const { alltitles, docnames, titles } = Search._index;
  for (const [heading, places] of Object.entries(alltitles)) {
    if (!heading.toLowerCase().includes(asked)) continue;
    const place = places.find(([page, id]) => docnames[page] === result[0] && id !== null);
    if (!place) continue;
    result[1] = `${titles[place[0]]} > ${heading}`;
    result[2] = `#${place[1]}`;
    return true;
  }
  return false;
};

var Scorer = {
  score: (result) => {
    const [page, title, , , score] = result;
    if (page.startsWith("notebooks/solutions/")) return score - 100;
    if (title.toLowerCase().includes(asked)) return score + 100;
    if (guides.includes(page)) return score + (leadToHeading(result) ? 100 : 20);
    return score;
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
