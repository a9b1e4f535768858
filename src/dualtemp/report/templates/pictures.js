// The map of the features. `map` is that of pictures.json, `columns` of its sheet; both are set by pictures.html.j2.
const root = document.querySelector("#pictures .map"), svg = root.querySelector("svg"), tip = root.querySelector(".tip");
const WIDTH = 640, HEIGHT = 480, EDGE = 18, NEAR = 40, SVG = "http://www.w3.org/2000/svg";
const SHAPES = ["M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0", "M-3.6-3.6h7.2v7.2h-7.2z", "M0-4.8 4.6 3.6h-9.2z", "M0-5 5 0 0 5-5 0z"];
const COLORS = 10, FIFTHS = 5;

const chosen = name => (root.querySelector(`input[name=pictures-${name}]:checked`) || {}).value;
const layout = () => chosen("layout") || "pca";
const coloring = () => chosen("color") || (map.labels.some(label => label >= 0) ? "class" : map.W ? "weight" : "none");
const className = label => label < 0 ? "no label" : map.classes[label] || `class ${label}`;
// Color and shape tell classes apart; together they repeat after 40.
const ofClass = label => label < 0 ? [SHAPES[0], "var(--muted)"]
  : [SHAPES[(label + Math.floor(label / 20)) % SHAPES.length], `var(--class${label % COLORS})`];

const limits = (() => {  // upper limits of W of the fifths of the images
  if (!map.W) return [];
  const sorted = map.W.filter(Number.isFinite).sort((a, b) => a - b);
  return Array.from({length: FIFTHS}, (_, i) => sorted[Math.max(0, Math.ceil((i + 1) * sorted.length / FIFTHS) - 1)]);
})();
const fifth = W => Math.max(0, limits.findIndex(limit => W <= limit));

let seen = -1, points = [];
const marks = map.names.map(() => svg.appendChild(document.createElementNS(SVG, "path")));

function place() {
  const found = map[layout()], spans = [0, 1].map(axis => {
    const values = found.map(point => point[axis]).filter(Number.isFinite);
    return [Math.min(...values), Math.max(...values)];
  });
  // One scale for both axes: distances on the map mean the same in every direction.
  const scale = Math.min(...[WIDTH, HEIGHT].map((side, axis) => (side - 2 * EDGE) / (spans[axis][1] - spans[axis][0] || 1)));
  const middle = spans.map(([low, high]) => (low + high) / 2);
  points = found.map(([x, y]) => [WIDTH / 2 + (x - middle[0]) * scale || 0, HEIGHT / 2 - (y - middle[1]) * scale || 0]);
  const larger = Math.min(1.6, Math.max(1, .9 * WIDTH / svg.clientWidth || 1)).toFixed(2);  // on a phone
  points.forEach(([x, y], i) => { marks[i].style.transform = `translate(${x.toFixed(1)}px,${y.toFixed(1)}px) scale(${larger})`; });
  const shares = (map.explained || []).map(share => `${(100 * share).toFixed(1)} %`);
  root.querySelector(".axes").textContent = layout() === "pca"
    ? `The two directions in which the features differ most; they carry ${shares.join(" and ")} of the variance.`
    : "Neighbors stay neighbors; distances between groups mean little.";
  look(-1);
}

function paint() {
  const by = coloring();
  marks.forEach((mark, i) => {
    const [shape, color] = by === "class" ? ofClass(map.labels[i])
      : by === "weight" ? [SHAPES[0], `var(--ramp${fifth(map.W[i])})`] : [SHAPES[0], "var(--series0)"];
    mark.setAttribute("d", shape);
    mark.style.fill = color;
  });
  legend(by);
  fade();
}

function legend(by) {
  const groups = by === "class" ? [...new Set(map.labels)].sort((a, b) => a - b).map(label => [className(label), label, ...ofClass(label)])
    : by === "weight" ? limits.map((limit, i) => {
      const low = i ? limits[i - 1] : Math.min(...map.W.filter(Number.isFinite));
      return [`W ${low.toFixed(4)} – ${limit.toFixed(4)}${i === 0 ? ", easy" : i === FIFTHS - 1 ? ", hard" : ""}`, i, SHAPES[0], `var(--ramp${i})`];
    }) : [];
  root.querySelector(".legend").replaceChildren(...groups.map(([text, value, shape, color]) => {
    const button = document.createElement("button"), mark = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "path");
    button.type = "button";
    button.dataset.value = value;
    button.setAttribute("aria-pressed", "false");
    mark.setAttribute("viewBox", "-6 -6 12 12");
    path.setAttribute("d", shape);
    path.style.fill = color;
    mark.append(path);
    button.append(mark, text);
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      fade();
    });
    return button;
  }));
}

function fade() {  // what is pressed in the legend stays, the rest fades
  const values = new Set([...root.querySelectorAll(".legend [aria-pressed=true]")].map(button => Number(button.dataset.value)));
  svg.classList.toggle("faded", values.size > 0);
  marks.forEach((mark, i) => mark.classList.toggle("chosen", values.has(coloring() === "class" ? map.labels[i] : map.W ? fifth(map.W[i]) : -1)));
}

function look(i) {
  if (seen >= 0) marks[seen].classList.remove("seen");
  seen = i;
  tip.hidden = i < 0;
  if (i < 0) return;
  marks[i].classList.add("seen");
  svg.append(marks[i]);  // on top
  const number = map.pictures[i], label = map.labels[i];
  tip.querySelector(".tile").style.cssText = `--c:${number % columns};--r:${Math.floor(number / columns)}`;
  tip.querySelector("span").textContent = [map.names[i], label >= 0 ? className(label) : "", map.W ? `W ${Number(map.W[i]).toFixed(3)}` : ""].filter(Boolean).join(" · ");
  const [x, y] = points[i].map(value => value * svg.clientWidth / WIDTH), away = 12;
  const right = x + away + tip.offsetWidth <= svg.clientWidth, below = y + away + tip.offsetHeight <= svg.clientHeight;
  tip.style.left = `${Math.max(0, right ? x + away : x - away - tip.offsetWidth)}px`;
  tip.style.top = `${Math.max(0, below ? y + away : y - away - tip.offsetHeight)}px`;
}

function nearest(event) {
  const box = svg.getBoundingClientRect(), scale = WIDTH / box.width;
  const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
  let best = -1, distance = NEAR * Math.max(1, scale);
  points.forEach((point, i) => {
    const away = Math.hypot(point[0] - x, point[1] - y);
    if (away < distance) [best, distance] = [i, away];
  });
  return best;
}

const STEPS = {ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1]};
function next(direction) {  // the nearest point that lies more in this direction than across it
  if (seen < 0) return 0;
  let best = seen, distance = Infinity;
  points.forEach((point, i) => {
    const x = point[0] - points[seen][0], y = point[1] - points[seen][1], along = x * direction[0] + y * direction[1];
    if (along > 0 && along >= Math.abs(x * direction[1] + y * direction[0]) && Math.hypot(x, y) < distance) [best, distance] = [i, Math.hypot(x, y)];
  });
  return best;
}

svg.addEventListener("pointermove", event => look(nearest(event)));
svg.addEventListener("pointerdown", event => look(nearest(event)));
svg.addEventListener("pointerleave", event => { if (event.pointerType === "mouse") look(-1); });
svg.addEventListener("keydown", event => {
  if (event.key === "Escape") look(-1);
  if (!(event.key in STEPS)) return;
  event.preventDefault();
  look(next(STEPS[event.key]));
});
root.querySelectorAll("[name=pictures-layout]").forEach(input => input.addEventListener("change", place));
root.querySelectorAll("[name=pictures-color]").forEach(input => input.addEventListener("change", paint));
addEventListener("resize", place);
place();
paint();
