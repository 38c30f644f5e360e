// After a search, a page opens where its words are together: at the first heading, row or paragraph that has them all.
const openAtWords = () => {
  if (window.location.hash) return; // the search led to a section
  const marked = [...document.querySelectorAll("article .highlighted")];
  const words = [...new Set(marked.map((mark) => mark.textContent.toLowerCase()))];
  const places = marked.map((mark) => mark.closest("h1, h2, h3, tr, li, p, pre")).filter(Boolean);
  const place = places.find((place) => words.every((word) => place.textContent.toLowerCase().includes(word)));
  place?.scrollIntoView({ block: "center" });
};

// Sphinx marks the words 10 ms after the page is there.
document.addEventListener("DOMContentLoaded", () => window.setTimeout(openAtWords, 50));
