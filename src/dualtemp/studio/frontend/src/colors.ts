// Colors of categories and numbers, for light and dark.

import { Column, NO_CODE } from "./store";

export type Rgb = [number, number, number];

const LIGHT = ["#2a78d6", "#e0662f", "#1a9e70", "#c79200", "#d1578f", "#7d5fd0", "#3aa6b9", "#9a6a3a", "#6f9a2e", "#7a8794"];
const DARK = ["#5aa2f2", "#f08a58", "#3fc896", "#e6b53c", "#ef86b4", "#a993f2", "#5fc6d8", "#c99a68", "#a2cb5c", "#a9b5c1"];
const RAMP_LIGHT = ["#e7e3c8", "#a9cfa0", "#4fae9c", "#2a78a8", "#2b3f8c", "#341a5c"];
const RAMP_DARK = ["#2f3350", "#34568a", "#2f8f9d", "#5cc08a", "#c4dd6a", "#fff3a0"];

export const dark = window.matchMedia("(prefers-color-scheme: dark)");

const rgb = (hex: string): Rgb => [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16)) as Rgb;

export const css = ([r, g, b]: Rgb): string => `rgb(${r} ${g} ${b})`;

export function categoryColor(code: number): Rgb {
  const palette = dark.matches ? DARK : LIGHT;
  if (code < palette.length) return rgb(palette[code]);
  // Golden angle: neighbors in the list differ most.
  const hue = (code * 137.508) % 360, light = (dark.matches ? 66 : 50) + (code % 3) * 6 - 6;
  return hsl(hue, 52, light);
}

function hsl(hue: number, saturation: number, light: number): Rgb {
  const s = saturation / 100, l = light / 100, a = s * Math.min(l, 1 - l);
  const part = (n: number): number => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (l - a * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [part(0), part(8), part(4)];
}

export function rampColor(share: number): Rgb {
  const stops = (dark.matches ? RAMP_DARK : RAMP_LIGHT).map(rgb), at = Math.max(0, Math.min(1, share)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(at)), t = at - low;
  return [0, 1, 2].map(i => Math.round(stops[low][i] * (1 - t) + stops[low + 1][i] * t)) as Rgb;
}

export const noColor = (): Rgb => dark.matches ? [106, 106, 102] : [178, 177, 170];

export interface Range { low: number; high: number }

// From the smallest to the largest, without the outermost hundredths.
export function rangeOf(values: Float32Array): Range {
  const step = Math.max(1, Math.floor(values.length / 20000)), sample: number[] = [];
  for (let i = 0; i < values.length; i += step) if (!Number.isNaN(values[i])) sample.push(values[i]);
  sample.sort((a, b) => a - b);
  if (!sample.length) return { low: 0, high: 1 };
  const low = sample[Math.floor(sample.length * 0.01)], high = sample[Math.min(sample.length - 1, Math.ceil(sample.length * 0.99))];
  return high > low ? { low, high } : { low: sample[0], high: sample[sample.length - 1] > sample[0] ? sample[sample.length - 1] : sample[0] + 1 };
}

// RGB of every image, (3 N).
export function pointColors(column: Column | null, count: number): Uint8Array {
  const colors = new Uint8Array(3 * count), none = noColor();
  if (!column) {
    const plain = categoryColor(0);
    for (let i = 0; i < count; i++) colors.set(plain, 3 * i);
    return colors;
  }
  if (column.kind === "category") {
    const table = column.categories.map((_, code) => categoryColor(code));
    for (let i = 0; i < count; i++) colors.set(column.values[i] === NO_CODE ? none : table[column.values[i]], 3 * i);
    return colors;
  }
  const { low, high } = rangeOf(column.values as Float32Array);
  const table = Array.from({ length: 256 }, (_, i) => rampColor(i / 255));
  for (let i = 0; i < count; i++) {
    const value = column.values[i];
    colors.set(Number.isNaN(value) ? none : table[Math.max(0, Math.min(255, Math.round(255 * (value - low) / (high - low))))], 3 * i);
  }
  return colors;
}
