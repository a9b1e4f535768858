// The map: pan, zoom, lasso, box, hover; thumbnails instead of dots where there is room for them.

import { css, dark, pointColors } from "./colors";
import { byId } from "./dom";
import { Camera, Points } from "./points";
import { store } from "./store";
import { Side, thumbs } from "./thumbs";

export type Tool = "hand" | "lasso" | "box";
const MORPH = 900; // ms
const FLUENT = 40; // ms of a frame while the map moves
const CELL = 58, PICTURE = 50; // px, of thumbnails on the map
const MOST_PICTURES = 700; // points in view up to which thumbnails are shown
const NEAR = 9; // px, of hovering

// In place of the colors of a column, for the temperatures: sizes and colors of some images, the others faint.
export interface Emphasis { colors: Uint8Array; sizes: Uint8Array; alpha: Uint8Array; top: number[] }

export class PointMap {
  readonly points: Points;
  private canvas = byId<HTMLCanvasElement>("points");
  private overlay = byId<HTMLCanvasElement>("overlay");
  private ink: CanvasRenderingContext2D;
  private camera: Camera = { x: 0, y: 0, zoom: 1 };
  private width = 1;
  private height = 1;
  private before: Float32Array;
  private after: Float32Array;
  private moved = 1;
  private morphBegan = 0;
  private colors: Uint8Array = new Uint8Array(0);
  private budget: number;
  private moving = false;
  private resting = 0;
  private lastFrame = 0;
  private asked = false;
  private path: [number, number][] = [];
  private pointers = new Map<number, PointerEvent>();
  private drag: "pan" | "lasso" | "box" | null = null;
  private travelled = 0;
  private emphasis: Emphasis | null = null;
  tool: Tool = "hand";
  frames: number[] = []; // ms, of the newest frames
  onHover: (id: number | null, x: number, y: number) => void = () => {};
  onOpen: (id: number) => void = () => {};
  onTool: (tool: Tool) => void = () => {};
  onEmphasis: (on: boolean) => void = () => {};

  constructor(count: number, places: Float32Array) {
    this.points = new Points(this.canvas, count);
    this.ink = this.overlay.getContext("2d")!;
    this.before = this.after = places;
    this.budget = Math.min(count, 60_000);
    this.points.setPlaces(places, places);
    new ResizeObserver(() => this.resize()).observe(byId("map-pane"));
    this.resize(true);
    this.recolor();
    this.listen();
    dark.addEventListener("change", () => this.recolor());
    store.on(["column"], () => this.recolor());
    store.on(["selection", "marks"], () => this.look());
  }

  // Move all points to other places, or jump there if the person prefers less motion.
  morph(places: Float32Array): void {
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.before = still ? places : this.now();
    this.after = places;
    this.points.setPlaces(this.before, this.after);
    this.moved = still ? 1 : 0;
    this.morphBegan = performance.now();
    this.redraw();
  }

  // Where points are now, also in the middle of a morph.
  now(): Float32Array {
    if (this.moved >= 1) return this.after;
    const eased = ease(this.moved), places = new Float32Array(this.after.length);
    for (let i = 0; i < places.length; i++) places[i] = this.before[i] * (1 - eased) + this.after[i] * eased;
    return places;
  }

  fit(ids?: ArrayLike<number>): void {
    const places = this.after, chosen = ids && ids.length ? ids : null, count = chosen ? chosen.length : store.count;
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
    for (let n = 0; n < count; n++) {
      const i = chosen ? chosen[n] : n, x = places[2 * i], y = places[2 * i + 1];
      if (!chosen && (Math.abs(x) > 1.3 || Math.abs(y) > 1.3)) continue; // a few far away ones
      x0 = Math.min(x0, x); x1 = Math.max(x1, x); y0 = Math.min(y0, y); y1 = Math.max(y1, y);
    }
    if (!(x1 >= x0)) { x0 = y0 = -1; x1 = y1 = 1; }
    this.camera.x = (x0 + x1) / 2;
    this.camera.y = (y0 + y1) / 2;
    this.camera.zoom = Math.min(this.width / Math.max(x1 - x0, 0.05), this.height / Math.max(y1 - y0, 0.05)) * 0.88;
    this.redraw();
  }

  zoom(factor: number, x = this.width / 2, y = this.height / 2): void {
    const [ux, uy] = this.unit(x, y);
    this.camera.zoom = Math.max(20, Math.min(4e6, this.camera.zoom * factor));
    const [nx, ny] = this.unit(x, y);
    this.camera.x += ux - nx;
    this.camera.y += uy - ny;
    this.move();
  }

  pan(dx: number, dy: number): void {
    this.camera.x -= dx / this.camera.zoom;
    this.camera.y += dy / this.camera.zoom;
    this.move();
  }

  setTool(tool: Tool): void {
    this.tool = tool;
    this.overlay.dataset.tool = tool;
    this.onTool(tool);
  }

  setEmphasis(emphasis: Emphasis | null): void {
    this.emphasis = emphasis;
    this.onEmphasis(emphasis !== null);
    this.look();
  }

  recolor(): void {
    this.colors = pointColors(store.column, store.count);
    this.look();
  }

  colorOf(id: number): string {
    return css([this.colors[3 * id], this.colors[3 * id + 1], this.colors[3 * id + 2]]);
  }

  // Images whose point lies within a polygon in pixels.
  within(polygon: [number, number][]): number[] {
    const places = this.now(), found: number[] = [];
    const corners = polygon.map(([x, y]) => this.unit(x, y));
    const xs = corners.map(p => p[0]), ys = corners.map(p => p[1]);
    const x0 = Math.min(...xs), x1 = Math.max(...xs), y0 = Math.min(...ys), y1 = Math.max(...ys);
    for (let i = 0; i < store.count; i++) {
      const x = places[2 * i], y = places[2 * i + 1];
      if (x >= x0 && x <= x1 && y >= y0 && y <= y1 && inside(corners, x, y)) found.push(i);
    }
    return found;
  }

  nearest(x: number, y: number, within = NEAR): number | null {
    const places = this.now(), [ux, uy] = this.unit(x, y);
    let best = (within / this.camera.zoom) ** 2, found: number | null = null;
    for (let i = 0; i < store.count; i++) {
      const dx = places[2 * i] - ux, dy = places[2 * i + 1] - uy, d = dx * dx + dy * dy;
      if (d < best) { best = d; found = i; }
    }
    return found;
  }

  pixel(id: number): [number, number] {
    const places = this.now();
    return [(places[2 * id] - this.camera.x) * this.camera.zoom + this.width / 2, this.height / 2 - (places[2 * id + 1] - this.camera.y) * this.camera.zoom];
  }

  redraw(): void {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(time => { this.asked = false; this.frame(time); });
  }

  // Draw everything once and wait for it; ms. For the benchmark.
  measureFrame(all = true): number {
    const began = performance.now();
    this.points.draw(this.camera, this.width, this.height, this.pointSize(), 1, all ? store.count : this.budget);
    this.points.finish();
    return performance.now() - began;
  }

  get drawnWhileMoving(): number { return this.budget; }

  private unit(x: number, y: number): [number, number] {
    return [(x - this.width / 2) / this.camera.zoom + this.camera.x, (this.height / 2 - y) / this.camera.zoom + this.camera.y];
  }

  private pointSize(): number {
    const usual = store.count < 2_000 ? 8 : store.count < 20_000 ? 5.5 : store.count < 200_000 ? 3.2 : 2;
    const closer = Math.min(2.2, Math.max(1, (this.camera.zoom / Math.min(this.width, this.height) * 2) ** 0.35));
    return usual * closer * devicePixelRatio;
  }

  private look(): void {
    if (this.emphasis) {
      const { colors, alpha, sizes, top } = this.emphasis;
      this.points.setLooks(colors, alpha, sizes, top);
    } else {
      const alpha = new Uint8Array(store.count), sizes = new Uint8Array(store.count), some = store.selection.length > 0;
      const open = store.count > 20_000 ? 170 : 215;
      for (let i = 0; i < store.count; i++) {
        alpha[i] = !some ? open : store.selected[i] ? 255 : 42;
        sizes[i] = some && store.selected[i] ? 160 : 128;
      }
      for (const id of store.marks) sizes[id] = 240;
      this.points.setLooks(this.colors, alpha, sizes, store.selection);
    }
    this.redraw();
  }

  private move(): void {
    this.moving = true;
    clearTimeout(this.resting);
    this.resting = window.setTimeout(() => { this.moving = false; this.redraw(); }, 140);
    this.redraw();
  }

  private frame(time: number): void {
    if (this.moved < 1) {
      this.moved = Math.min(1, (performance.now() - this.morphBegan) / MORPH);
      this.moving = this.moved < 1;
    }
    if (this.moving && this.lastFrame) {
      const took = time - this.lastFrame;
      if (took < 500) {
        this.frames = [...this.frames.slice(-99), took];
        if (took > FLUENT) this.budget = Math.max(5_000, this.budget * 0.8);
        else if (took < FLUENT / 2) this.budget = Math.min(store.count, this.budget * 1.1);
      }
    }
    this.lastFrame = this.moving ? time : 0;
    this.points.draw(this.camera, this.width, this.height, this.pointSize(), ease(this.moved), this.moving ? this.budget : store.count);
    this.drawOverlay();
    if (this.moved < 1) this.redraw();
  }

  private drawOverlay(): void {
    const ink = this.ink, ratio = devicePixelRatio;
    ink.setTransform(ratio, 0, 0, ratio, 0, 0);
    ink.clearRect(0, 0, this.width, this.height);
    if (thumbs.enabled && this.moved >= 1 && !this.emphasis) this.drawPictures();
    if (this.path.length > 1) {
      const style = getComputedStyle(this.overlay);
      ink.beginPath();
      this.path.forEach(([x, y], n) => n ? ink.lineTo(x, y) : ink.moveTo(x, y));
      ink.closePath();
      ink.fillStyle = style.getPropertyValue("--veil");
      ink.strokeStyle = style.getPropertyValue("--accent");
      ink.lineWidth = 1.5;
      ink.fill();
      ink.stroke();
    }
  }

  private drawPictures(): void {
    const places = this.after, [x0, y1] = this.unit(-CELL, -CELL), [x1, y0] = this.unit(this.width + CELL, this.height + CELL);
    const seen: number[] = [], some = store.selection.length > 0;
    for (const i of this.points.order) {
      const x = places[2 * i], y = places[2 * i + 1];
      if (x > x0 && x < x1 && y > y0 && y < y1) {
        seen.push(i);
        if (seen.length > MOST_PICTURES) return;
      }
    }
    const taken = new Map<string, [number, number]>(), ink = this.ink; // by cell: the middle of the picture in it
    if (some) seen.sort((a, b) => store.selected[b] - store.selected[a]);
    for (const id of seen) {
      const [x, y] = this.pixel(id), column = Math.floor(x / CELL), row = Math.floor(y / CELL);
      if (covers(taken, column, row, x, y)) continue;
      taken.set(`${column},${row}`, [x, y]);
      const side: Side = devicePixelRatio > 1 ? 96 : 48;
      const picture = thumbs.get(id, side, () => this.redraw());
      if (!picture) continue;
      ink.globalAlpha = some && !store.selected[id] ? 0.25 : 1;
      const half = PICTURE / 2;
      ink.fillStyle = this.colorOf(id);
      ink.beginPath();
      ink.roundRect(x - half - 2.5, y - half - 2.5, PICTURE + 5, PICTURE + 5, 7);
      ink.fill();
      ink.save();
      ink.beginPath();
      ink.roundRect(x - half, y - half, PICTURE, PICTURE, 5);
      ink.clip();
      ink.drawImage(picture, x - half, y - half, PICTURE, PICTURE);
      ink.restore();
    }
    ink.globalAlpha = 1;
  }

  private resize(first = false): void {
    const pane = byId("map-pane").getBoundingClientRect();
    this.width = Math.max(1, pane.width);
    this.height = Math.max(1, pane.height);
    for (const canvas of [this.canvas, this.overlay]) {
      canvas.width = Math.round(this.width * devicePixelRatio);
      canvas.height = Math.round(this.height * devicePixelRatio);
    }
    if (first) this.fit(); else this.redraw();
  }

  private listen(): void {
    const here = this.overlay;
    const at = (event: PointerEvent | MouseEvent): [number, number] => {
      const box = here.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    here.addEventListener("wheel", event => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0016)), ...at(event));
    }, { passive: false });
    here.addEventListener("pointerdown", event => {
      if (event.button > 0) return; // a menu may swallow the end of it
      here.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, event);
      this.travelled = 0;
      if (this.pointers.size > 1) { this.drag = "pan"; this.path = []; return; }
      this.drag = event.shiftKey || this.tool === "box" ? "box" : event.altKey || this.tool === "lasso" ? "lasso" : "pan";
      if (this.drag !== "pan") this.path = [at(event)];
    });
    here.addEventListener("pointermove", event => {
      const before = this.pointers.get(event.pointerId), [x, y] = at(event);
      if (!before || !this.drag) {
        const id = this.nearest(x, y);
        this.onHover(id, x, y);
        return;
      }
      this.onHover(null, x, y);
      const [bx, by] = at(before);
      this.travelled += Math.abs(x - bx) + Math.abs(y - by);
      if (this.pointers.size === 2) this.pinch(event);
      else if (this.drag === "pan") this.pan(x - bx, y - by);
      else if (this.drag === "lasso") { this.path.push([x, y]); this.redraw(); }
      else { const [sx, sy] = this.path[0]; this.path = [[sx, sy], [x, sy], [x, y], [sx, y]]; this.redraw(); }
      this.pointers.set(event.pointerId, event);
    });
    const end = (event: PointerEvent): void => {
      if (!this.pointers.delete(event.pointerId) || this.pointers.size) return;
      const drag = this.drag, path = this.path, [x, y] = at(event);
      this.drag = null;
      this.path = [];
      this.redraw();
      if (event.type === "pointercancel") return;
      if (this.travelled < 5) this.click(x, y, event.shiftKey || event.ctrlKey || event.metaKey);
      else if (drag !== "pan" && path.length > 2) store.select(this.within(path), drag === "box" ? "in the box" : "in the lasso");
    };
    here.addEventListener("pointerup", end);
    here.addEventListener("pointercancel", end);
    here.addEventListener("pointerleave", () => this.onHover(null, 0, 0));
    here.addEventListener("dblclick", event => {
      const id = this.nearest(...at(event), 26);
      if (id !== null) this.onOpen(id);
    });
  }

  private pinch(event: PointerEvent): void {
    const other = [...this.pointers.values()].find(each => each.pointerId !== event.pointerId)!, mine = this.pointers.get(event.pointerId)!;
    const box = this.overlay.getBoundingClientRect();
    const before = Math.hypot(mine.clientX - other.clientX, mine.clientY - other.clientY), after = Math.hypot(event.clientX - other.clientX, event.clientY - other.clientY);
    if (before > 0) this.zoom(after / before, (event.clientX + other.clientX) / 2 - box.left, (event.clientY + other.clientY) / 2 - box.top);
  }

  private click(x: number, y: number, adds: boolean): void {
    const id = this.nearest(x, y, 26);
    if (id === null) { if (!adds) store.clear(); return; }
    if (!adds) store.select([id], "clicked");
    else store.select(store.selected[id] ? store.selection.filter(each => each !== id) : [...store.selection, id], "clicked");
  }
}

// Whether a picture at (x, y) would cover one that is there already.
function covers(taken: Map<string, [number, number]>, column: number, row: number, x: number, y: number): boolean {
  for (let dc = -1; dc <= 1; dc++) {
    for (let dr = -1; dr <= 1; dr++) {
      const other = taken.get(`${column + dc},${row + dr}`);
      if (other && Math.abs(other[0] - x) < CELL && Math.abs(other[1] - y) < CELL) return true;
    }
  }
  return false;
}

const ease = (t: number): number => t < 0.5 ? 4 * t ** 3 : 1 - (-2 * t + 2) ** 3 / 2;

function inside(corners: [number, number][], x: number, y: number): boolean {
  let within = false;
  for (let i = 0, j = corners.length - 1; i < corners.length; j = i++) {
    const [xi, yi] = corners[i], [xj, yj] = corners[j];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) within = !within;
  }
  return within;
}
