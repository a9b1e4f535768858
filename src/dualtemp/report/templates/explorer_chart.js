// A small line chart over temperatures, as SVG: logarithmic in tau, infinity at its right end.
const CHART = {height: 210, left: 46, right: 14, top: 30, bottom: 30};
const text = words => String(words).replace(/&/g, "&amp;").replace(/</g, "&lt;");

// lines: [{name, values: [[tau, y], ...]}]; marks: [{name, tau, y, acting}]; ticks: [[y, words], ...] from the lowest to the highest;
// level: a value at no temperature, drawn across, or null
function drawChart(svg, {title, taus, lines, marks, ticks, logarithmic, level = null}) {
  const scaled = y => logarithmic ? Math.log(Math.max(y, 1e-9)) : y;
  const low = scaled(ticks[0][0]), high = scaled(ticks[ticks.length - 1][0]), bottom = CHART.height - CHART.bottom;
  const up = y => bottom - (bottom - CHART.top) * (scaled(y) - low) / (high - low || 1);
  const width = Math.max(280, svg.clientWidth), end = width - CHART.right, first = taus[0], last = taus[taus.length - 1];
  const across = tau => tau === Infinity ? end : CHART.left + (end - CHART.left - 36) * Math.log(tau / first) / Math.log(last / first);
  const parts = [`<text class="title" x="0" y="14">${text(title)}</text>`];
  for (const [y, words] of ticks) {
    parts.push(`<line class="grid" x1="${CHART.left}" x2="${end}" y1="${up(y).toFixed(1)}" y2="${up(y).toFixed(1)}"/>`,
      `<text x="${CHART.left - 6}" y="${(up(y) + 4).toFixed(1)}" text-anchor="end">${text(words)}</text>`);
  }
  for (const tau of [.02, .05, .1, .2, .5, 1, 2, 5, Infinity].filter(tau => tau >= first && (tau === Infinity || tau <= last)))
    parts.push(`<text x="${across(tau).toFixed(1)}" y="${bottom + 18}" text-anchor="middle">${tau === Infinity ? "∞" : tau}</text>`);
  for (const line of lines)
    parts.push(`<polyline class="${line.name}" points="${line.values.map(([tau, y]) => `${across(tau).toFixed(1)},${up(y).toFixed(1)}`).join(" ")}"/>`);
  if (level !== null) parts.push(`<line class="beta acting" x1="${CHART.left}" x2="${end}" y1="${up(level).toFixed(1)}" y2="${up(level).toFixed(1)}"/>`);
  for (const mark of marks) {
    const x = across(mark.tau).toFixed(1);
    parts.push(`<line class="${mark.name}${mark.acting ? " acting" : ""}" x1="${x}" x2="${x}" y1="${CHART.top}" y2="${bottom}"/>`);
    if (mark.acting) parts.push(`<circle class="${mark.name}" cx="${x}" cy="${up(mark.y).toFixed(1)}" r="6"/>`);
  }
  svg.setAttribute("viewBox", `0 0 ${width} ${CHART.height}`);  // a unit is a pixel: text keeps its size on a phone
  svg.innerHTML = parts.join("");
  svg.setAttribute("aria-label", `${title}; ${level === null ? "" : level.toPrecision(3)}${marks.filter(mark => mark.acting).map(mark => `${mark.y.toPrecision(3)} at tau ${mark.tau}`).join(", ")}`);
}
