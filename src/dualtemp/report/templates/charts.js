// Values under the pointer, on every chart: a cross at the nearest epoch, and its values as text above the chart.
// Arrow keys move it too. Runs that are switched off in the legend are left out.
for (const chart of document.querySelectorAll("svg.epochs")) {
  const lines = JSON.parse(chart.dataset.lines), cross = chart.querySelector(".cross");
  const readout = chart.parentElement.querySelector(".readout"), usual = readout.textContent;
  const off = line => chart.querySelector(`g[data-run="${line.line}"]`).classList.contains("off");
  let at = null;

  const places = () => {
    const found = new Map();
    for (const line of lines) if (!off(line)) for (const [x, , epoch] of line.points) found.set(epoch, x);
    return [...found].sort((a, b) => a[0] - b[0]);
  };
  const show = (epoch, x) => {
    at = epoch;
    cross.setAttribute("visibility", "visible");
    cross.querySelector("line").setAttribute("x1", x);
    cross.querySelector("line").setAttribute("x2", x);
    cross.querySelectorAll("g").forEach(dot => dot.remove());
    const words = [];
    for (const line of lines) {
      const point = off(line) ? null : line.points.find(p => p[2] === epoch);
      if (!point) continue;
      const dot = document.createElementNS("http://www.w3.org/2000/svg", "g");
      dot.setAttribute("class", `run${line.number}`);
      const circle = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      for (const [name, value] of [["cx", point[0]], ["cy", point[1]], ["r", 4.5]]) circle.setAttribute(name, value);
      dot.append(circle);
      cross.append(dot);
      words.push(lines.length > 1 ? `${line.name} ${point[3]}` : point[3]);
    }
    readout.textContent = `epoch ${epoch}: ${words.join(", ")}`;
  };
  const hide = () => {
    at = null;
    cross.setAttribute("visibility", "hidden");
    readout.textContent = usual;
  };
  const point = event => {
    const box = chart.getBoundingClientRect(), x = (event.clientX - box.left) * chart.viewBox.baseVal.width / box.width;
    const near = places().reduce((best, one) => !best || Math.abs(one[1] - x) < Math.abs(best[1] - x) ? one : best, null);
    if (near) show(...near);
  };
  chart.addEventListener("pointermove", point);
  chart.addEventListener("pointerdown", point);
  chart.addEventListener("pointerleave", event => { if (event.pointerType === "mouse") hide(); });  // what a finger has touched stays
  chart.addEventListener("blur", hide);
  chart.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], all = places();
    if (!step || !all.length) return;
    event.preventDefault();
    const now = all.findIndex(([epoch]) => epoch === at);
    show(...all[now < 0 ? all.length - 1 : Math.min(all.length - 1, Math.max(0, now + step))]);
  });
}
for (const box of document.querySelectorAll(".legend.runs input"))
  box.addEventListener("change", () => {
    for (const line of document.querySelectorAll(`svg.epochs g[data-run="${box.value}"]`)) line.classList.toggle("off", !box.checked);
  });
for (const box of document.querySelectorAll(".legend.runs input")) box.dispatchEvent(new Event("change"));
