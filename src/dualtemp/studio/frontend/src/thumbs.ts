// Thumbnails, asked for in batches, and kept while they are likely to be seen again.

export type Side = 48 | 96 | 160;
const BATCH = 32, KEPT = 4000, AT_ONCE = 3;
const PAUSE = 3000; // ms after a request that failed: a studio that has ended is not asked again and again

class Thumbs {
  private kept = new Map<string, ImageBitmap>();
  private wanted = new Map<Side, Set<number>>();
  private waiting = new Map<string, Set<() => void>>();
  private fleeting = new Set<string>(); // of these, what only the grid waits for
  private asking = 0;
  private planned = false;
  private silent = 0; // until when nothing is asked
  enabled = true;

  // The thumbnail if it is here; else it is asked for, and `then` is called when it has come.
  // fleeting: it is not needed any more after `forget`.
  get(id: number, side: Side, then: () => void, fleeting = false): ImageBitmap | undefined {
    if (!this.enabled) return undefined;
    const key = `${side}/${id}`, found = this.kept.get(key);
    if (found) {
      this.kept.delete(key);
      this.kept.set(key, found); // used last
      return found;
    }
    if (performance.now() < this.silent) return undefined;
    const already = this.waiting.get(key);
    if (!fleeting) this.fleeting.delete(key);
    if (already) { already.add(then); return undefined; }
    this.waiting.set(key, new Set([then]));
    if (fleeting) this.fleeting.add(key);
    if (!this.wanted.has(side)) this.wanted.set(side, new Set());
    this.wanted.get(side)!.add(id);
    this.plan();
    return undefined;
  }

  // What was asked for but not begun is no longer needed: the grid has moved on.
  forget(): void {
    for (const [side, ids] of this.wanted) {
      for (const id of [...ids]) {
        const key = `${side}/${id}`;
        if (!this.fleeting.delete(key)) continue;
        this.waiting.delete(key);
        ids.delete(id);
      }
    }
  }

  private plan(): void {
    if (this.planned) return;
    this.planned = true;
    queueMicrotask(() => { this.planned = false; this.ask(); }); // once everything that is wanted now is known
  }

  private ask(): void {
    for (const [side, ids] of this.wanted) {
      while (ids.size && this.asking < AT_ONCE) {
        const batch = [...ids].slice(0, BATCH);
        batch.forEach(id => ids.delete(id));
        this.asking++;
        void this.fetch(batch, side).finally(() => { this.asking--; this.ask(); });
      }
    }
  }

  private async fetch(batch: number[], side: Side): Promise<void> {
    const acts = new Set<() => void>();
    try {
      const response = await fetch(`/api/thumbs?side=${side}&ids=${batch.join(",")}`);
      if (!response.ok) throw new Error(String(response.status));
      const columns = Number(response.headers.get("x-columns")) || 8, sheet = await createImageBitmap(await response.blob());
      await Promise.all(batch.map(async (id, place) => {
        const x = (place % columns) * side, y = Math.floor(place / columns) * side;
        this.kept.set(`${side}/${id}`, await createImageBitmap(sheet, x, y, side, side));
      }));
      sheet.close();
      for (const id of batch) this.waiting.get(`${side}/${id}`)?.forEach(act => acts.add(act));
    } catch {
      this.silent = performance.now() + PAUSE; // the studio has ended, or the page is closing
    } finally {
      for (const id of batch) {
        this.waiting.delete(`${side}/${id}`);
        this.fleeting.delete(`${side}/${id}`);
      }
      while (this.kept.size > KEPT) {
        const [key, bitmap] = this.kept.entries().next().value!;
        this.kept.delete(key);
        bitmap.close();
      }
      acts.forEach(act => act());
    }
  }
}

export const thumbs = new Thumbs();
