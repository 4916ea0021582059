const figures = JSON.parse(document.getElementById("figures").textContent);
const waiting = [...document.querySelectorAll(".plot")];
// A page that was copied without the library says so and shows everything except its plots.
if (!globalThis.Plotly) {
  for (const place of waiting.splice(0)) {
    place.className = "empty";
    place.style.minHeight = "";
    place.textContent = "The plots need " +
      document.querySelector("[data-library]").getAttribute("src") +
      ", which every page of fedlingua writes; keep it where this page looks for it.";
  }
}
// Place each point's name at the first free spot, ring by ring around the point, beside it before above it.
const RINGS = [0, 8, 18, 30, 44, 60, 78, 98, 120];
const ANGLES = [0, 8, 15, 1, 7, 9, 14, 2, 6, 10, 13, 3, 5, 11, 4, 12];
const spots = RINGS.flatMap((ring) =>
  ANGLES.map((angle) => {
    const across = Math.cos(angle * Math.PI / 8), up = Math.sin(angle * Math.PI / 8);
    const xanchor = across > 0.5 ? "left" : across < -0.5 ? "right" : "center";
    return {
      xanchor,
      near: ring < 10,
      ax: across * (9 + ring),
      ay: -up * (9 + ring + (xanchor === "center" ? 8 : 0)),
    };
  })
);
const spread = (place) => {
  const { xaxis, yaxis, meta } = place._fullLayout, names = place.layout.annotations ?? [];
  if (!meta?.lead) return;
  const pixel = (x, y) => [xaxis.d2p(x), yaxis.d2p(y)];
  const around = (
    [x, y],
    [right, bottom] = [x, y],
    room = 4,
  ) => [
    Math.min(x, right) - room,
    Math.min(y, bottom) - room,
    Math.max(x, right) + room,
    Math.max(y, bottom) + room,
  ];
  const taken = names.map(({ x, y }) => around(pixel(x, y), undefined, 6));
  for (const { x, y, error_y, line } of place.data) {
    y.forEach((score, index) => {
      const [sd, next, after] = [error_y?.array?.[index] ?? 0, x[index + 1], y[index + 1]];
      taken.push(around(pixel(x[index], score - sd), pixel(x[index], score + sd)));
      if (!line?.shape || next === undefined) return;
      const corner = line.shape === "hv" ? pixel(next, score) : pixel(x[index], after);
      taken.push(around(pixel(x[index], score), corner), around(corner, pixel(next, after)));
    });
  }
  const annotations = names.map((name) => {
    const [x, y] = pixel(name.x, name.y), width = 7.2 * name.text.length;
    const box = ({ ax, ay, xanchor }) => {
      const left = x + ax - { left: 0, center: width / 2, right: width }[xanchor];
      return [left, y + ay - 8, left + width, y + ay + 8];
    };
    const free = ([left, top, right, bottom]) =>
      left >= 0 && top >= 0 && right <= xaxis._length && bottom <= yaxis._length &&
      !taken.some((each) => left < each[2] && each[0] < right && top < each[3] && each[1] < bottom);
    const { near, ...spot } = spots.find((each) => free(box(each))) ?? spots[0];
    taken.push(box(spot));
    return { ...name, ...spot, arrowcolor: near ? "rgba(0,0,0,0)" : meta.lead };
  });
  Plotly.relayout(place, { annotations });
};
const draw = (place) => {
  const figure = figures[place.id.slice("plot-".length)];
  Plotly.newPlot(place, figure.data, figure.layout, {
    responsive: true,
    displayModeBar: false,
  });
  spread(place);
};
// Draw plots one at a time from the top, so that the page can be read and scrolled before the last is drawn.
const drawNext = () => {
  if (!(waiting[0]?.getBoundingClientRect().top < innerHeight)) {
    document.documentElement.dataset.inView ??= Math.round(performance.now());
  }
  if (waiting.length) {
    draw(waiting.shift());
    setTimeout(drawNext);
  } else {document.documentElement.dataset.drawn ??= Math.round(
      performance.now(),
    );}
};
drawNext();
// The width of the paper differs from the window's.
const fit = (width) =>
  document.querySelectorAll(".plot").forEach((plot) => {
    Plotly.relayout(plot, width ? { width } : { width: null, autosize: true });
    spread(plot);
  });
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => document.querySelectorAll(".js-plotly-plot").forEach(spread), 300);
});
addEventListener("beforeprint", () => {
  while (waiting.length) draw(waiting.shift());
  fit(PAPER);
});
addEventListener("afterprint", () => fit());
