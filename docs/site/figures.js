// A figure opens in its own size.
document.addEventListener("DOMContentLoaded", () => {
  for (const figure of document.querySelectorAll(".cell_output img")) {
    const link = document.createElement("a");
    link.href = figure.src;
    link.title = "Open the figure in its own size";
    figure.replaceWith(link);
    link.append(figure);
  }
});
