const figures = JSON.parse(document.getElementById("figures").textContent);
const waiting = [...document.querySelectorAll(".plot")];
const draw = (place) => {
  const figure = figures[place.id.slice("plot-".length)];
  Plotly.newPlot(place, figure.data, figure.layout, {
    responsive: true,
    displayModeBar: false,
  });
};
// From the top, one at a time: the page can be read and scrolled before the last is there.
const drawNext = () => {
  if (waiting.length) {
    draw(waiting.shift());
    setTimeout(drawNext);
  } else {document.documentElement.dataset.drawn ??= Math.round(
      performance.now(),
    );}
};
drawNext();
// Paper has another width than the window.
const fit = (width) =>
  document.querySelectorAll(".plot").forEach((plot) =>
    Plotly.relayout(plot, width ? { width } : { width: null, autosize: true })
  );
addEventListener("beforeprint", () => {
  while (waiting.length) draw(waiting.shift());
  fit(PAPER);
});
addEventListener("afterprint", () => fit());
