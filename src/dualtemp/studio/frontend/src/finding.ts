// Looking for images: like these, like a picture, by words.

import { attempt, getFrame, post, postFile } from "./api";
import { say } from "./dom";
import { store } from "./store";

export async function similar(): Promise<void> {
  const ids = store.targets();
  if (!ids.length) return say("Select images first.");
  const isNewest = store.selecting.take();
  const found = await attempt(() => post<{ ids: number[] }>("/api/similar", { ids, most: Math.max(60, ids.length + 40) }));
  if (found && isNewest()) store.select(found.ids, ids.length === 1 ? "like this one" : `like these ${ids.length}`);
}

export async function drop(file: Blob): Promise<void> {
  if (file.size > 32 << 20) return say("This file is larger than 32 MB.", true);
  say("Looking for images like it\u2026");
  const isNewest = store.selecting.take();
  const found = await attempt(() => postFile<{ ids: number[]; cosines: number[] }>("/api/drop", file));
  if (found && isNewest()) {
    store.select(found.ids.slice(0, 60), "like the dropped picture");
    say(`The nearest has a cosine of ${found.cosines[0].toFixed(3)}.`);
  }
}

export async function search(text: string): Promise<void> {
  if (!text.trim()) return store.clear();
  const isNewest = store.selecting.take();
  const frame = await attempt(() => getFrame(`/api/search?q=${encodeURIComponent(text)}`));
  if (!frame || !isNewest()) return;
  const ids = new Int32Array(frame.data, frame.at, frame.head.count);
  if (ids.length) store.select(ids, `with \u201c${text.trim()}\u201d`);
  else say(`Nothing is called \u201c${text.trim()}\u201d.`);
}
