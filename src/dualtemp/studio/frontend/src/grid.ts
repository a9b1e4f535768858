// The grid of thumbnails: what is selected, or everything; only the rows in view exist.

import { byId, h, many } from "./dom";
import { items, labelOf } from "./items";
import { NO_CODE, store } from "./store";
import { thumbs } from "./thumbs";

const GAP = 6, CAPTION = 20;

export class Grid {
  private element = byId("grid");
  private inner = h("div", { class: "inner", role: "presentation" });
  private shown: Int32Array = new Int32Array(0);
  private cells = new Map<number, HTMLElement>(); // by place
  private columns = 1;
  private side = 96;
  private focus = 0;
  private last: number | null = null;
  private clicked: number | null = null; // image; a click may change the grid before it becomes a double click
  private sorted = ""; // by what: order and column
  onOpen: (id: number) => void = () => {};
  onHover: (id: number | null) => void = () => {};
  colorOf: (id: number) => string = () => "";

  constructor() {
    this.element.append(this.inner);
    this.element.addEventListener("scroll", () => { thumbs.forget(); this.cells.forEach(cell => delete cell.dataset.drawn); this.render(); });
    this.element.addEventListener("keydown", event => this.key(event));
    new ResizeObserver(() => this.layOut()).observe(this.element);
    store.on(["selection"], () => this.show());
    store.on(["marks", "labels", "items", "predictions"], () => this.refresh());
    // New values of the same column leave the order as it is: whoever labels does not want the images to jump.
    store.on(["column"], () => this.sorted === this.wanted ? this.refresh() : this.show());
    this.element.addEventListener("dblclick", () => { if (this.clicked !== null) this.onOpen(this.clicked); });
    byId<HTMLSelectElement>("order").addEventListener("change", () => this.show());
  }

  get ids(): Int32Array { return this.shown; }

  private get wanted(): string {
    const order = byId<HTMLSelectElement>("order").value || "found";
    return order === "found" ? order : `${order} ${store.column?.id}`;
  }

  show(): void {
    const order = byId<HTMLSelectElement>("order").value || "found";
    const some = store.selection.length > 0;
    let ids = some ? Int32Array.from(store.selection) : Int32Array.from({ length: store.count }, (_, i) => i);
    const column = store.column;
    if (order !== "found" && column) {
      const sign = order === "down" ? -1 : 1, empty = (v: number): boolean => column.kind === "category" ? v === NO_CODE : Number.isNaN(v);
      ids = ids.sort((a, b) => {
        const x = column.values[a], y = column.values[b];
        return empty(x) || empty(y) ? Number(empty(x)) - Number(empty(y)) || a - b : sign * (x - y) || a - b;
      });
    }
    this.shown = ids;
    this.sorted = this.wanted;
    this.focus = 0;
    this.last = null;
    byId("grid-title").textContent = some ? `${many(ids.length, "image")} ${store.why}` : `All ${many(store.count, "image")}`;
    this.element.scrollTop = 0;
    this.layOut();
  }

  private layOut(): void {
    const width = this.element.clientWidth - 2;
    const wanted = width < 420 ? 76 : 92;
    this.columns = Math.max(2, Math.floor((width + GAP) / (wanted + GAP)));
    this.side = Math.floor((width - GAP * (this.columns - 1)) / this.columns);
    this.inner.style.height = `${Math.ceil(this.shown.length / this.columns) * this.rowHeight}px`;
    this.cells.forEach(cell => cell.remove());
    this.cells.clear();
    this.render();
  }

  private get rowHeight(): number { return this.side + CAPTION + GAP; }

  private render(): void {
    const top = this.element.scrollTop, bottom = top + this.element.clientHeight;
    const first = Math.max(0, Math.floor(top / this.rowHeight) - 1) * this.columns;
    const end = Math.min(this.shown.length, (Math.ceil(bottom / this.rowHeight) + 1) * this.columns);
    for (const [place, cell] of this.cells) {
      if (place < first || place >= end) { cell.remove(); this.cells.delete(place); }
    }
    for (let place = first; place < end; place++) {
      if (!this.cells.has(place)) this.cells.set(place, this.cell(place));
      this.dress(place);
    }
  }

  private cell(place: number): HTMLElement {
    const id = this.shown[place], canvas = h("canvas", { width: 96, height: 96, "aria-hidden": "true" });
    const cell = h("div", { class: "cell", role: "option", id: `cell-${place}` }, canvas, h("span", { class: "caption" }));
    cell.style.width = `${this.side}px`;
    cell.style.transform = `translate(${(place % this.columns) * (this.side + GAP)}px, ${Math.floor(place / this.columns) * this.rowHeight}px)`;
    canvas.style.height = `${this.side}px`;
    cell.addEventListener("click", event => {
      this.focus = place;
      if (event.detail < 2) this.clicked = id;
      if (event.shiftKey && this.last !== null) this.markRange(this.last, place);
      else if (store.selection.length) store.toggleMark(id);
      else store.select([id], "clicked");
      this.last = place;
    });
    cell.addEventListener("pointerenter", () => this.onHover(id));
    cell.addEventListener("pointerleave", () => this.onHover(null));
    this.inner.append(cell);
    return cell;
  }

  private dress(place: number): void {
    const cell = this.cells.get(place)!, id = this.shown[place], item = items.get(id);
    if (!cell.dataset.drawn) {
      const picture = thumbs.get(id, 96, () => { if (this.cells.get(place) === cell) this.dress(place); }, true);
      if (picture) {
        (cell.firstChild as HTMLCanvasElement).getContext("2d")!.drawImage(picture, 0, 0, 96, 96);
        cell.dataset.drawn = "1";
      }
    }
    const label = labelOf(id, item), own = store.entries.get(id), caption = cell.lastChild as HTMLElement;
    const guess = !label && item?.prediction ? `${item.prediction}?` : "";
    caption.textContent = label ?? guess;
    caption.className = own?.[0] ? "caption own" : label ? "caption" : "caption guess";
    cell.style.setProperty("--color", this.colorOf(id));
    const marked = store.marks.has(id);
    cell.classList.toggle("marked", marked);
    cell.classList.toggle("focused", place === this.focus);
    cell.classList.toggle("tagged", Boolean(own?.[1].length));
    cell.setAttribute("aria-selected", String(marked));
    const tags = own?.[1].length ? `, tagged ${own[1].join(", ")}` : "";
    cell.setAttribute("aria-label", `${item?.name ?? `image ${id}`}${label ? `, ${label}` : guess ? `, perhaps ${item?.prediction}` : ""}${tags}`);
    cell.title = `${item?.name ?? ""}${tags}`;
  }

  private refresh(): void { this.cells.forEach((_, place) => this.dress(place)); }

  private markRange(from: number, to: number): void {
    for (let place = Math.min(from, to); place <= Math.max(from, to); place++) store.marks.add(this.shown[place]);
    store.tell("marks");
  }

  private key(event: KeyboardEvent): void {
    const rows = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight));
    const steps: Record<string, number> = {
      ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns, PageDown: rows * this.columns, PageUp: -rows * this.columns,
      Home: -this.shown.length, End: this.shown.length,
    };
    if (event.ctrlKey && event.key === "a") {
      event.preventDefault();
      this.shown.forEach(id => store.marks.add(id));
      store.tell("marks");
    } else if (event.key in steps && !event.altKey && !event.metaKey) {
      event.preventDefault();
      const before = this.focus;
      this.focus = Math.max(0, Math.min(this.shown.length - 1, this.focus + steps[event.key]));
      if (event.shiftKey) this.markRange(before, this.focus);
      this.reveal();
    } else if (event.key === " ") {
      event.preventDefault();
      if (store.selection.length) store.toggleMark(this.shown[this.focus]);
      else store.select([this.shown[this.focus]], "clicked");
    } else if (event.key === "Enter") {
      event.preventDefault(); // it would press the button of the viewer that gets the focus
      this.onOpen(this.shown[this.focus]);
    }
  }

  private reveal(): void {
    const top = Math.floor(this.focus / this.columns) * this.rowHeight;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + this.rowHeight > this.element.scrollTop + this.element.clientHeight) this.element.scrollTop = top + this.rowHeight - this.element.clientHeight;
    this.render();
    this.refresh();
    this.element.setAttribute("aria-activedescendant", `cell-${this.focus}`);
  }
}
