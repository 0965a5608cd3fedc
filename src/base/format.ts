const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Formats a duration in ms for people: `42 ms`, `1.8 s`, `2.5 min`, `6 h`, `3 days`. Negative durations count as 0. */
export function formatDuration(ms: number): string {
  if (ms < 999.5) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 59_950) return `${roundToTenth(ms / 1000)} s`;
  if (ms < 59.95 * MINUTE) return `${roundToTenth(ms / MINUTE)} min`;
  return ms < 2 * DAY ? `${roundToTenth(ms / HOUR)} h` : `${Math.round(ms / DAY)} days`;
}

/**
 * Formats a duration that still grows, in whole units, so that its text changes as rarely as that of an age: `0 s`,
 * `12 s`, `5 min`, `3 h`, `2 days`.
 */
export function formatElapsed(ms: number): string {
  const unit = ms < MINUTE ? 1000 : ms < HOUR ? MINUTE : ms < 2 * DAY ? HOUR : DAY;
  return ms < 1000 ? "0 s" : formatDuration(Math.floor(ms / unit) * unit);
}

/** Formats a time that is still to pass: from 10 s on in whole seconds. */
export function formatWait(ms: number): string {
  return formatDuration(ms < 10_000 ? ms : Math.ceil(ms / 1000) * 1000);
}

/** Formats an age in ms for people, in whole units: `just now`, `12 s ago`, `5 min ago`, `3 h ago`, `2 days ago`. */
export function formatAge(ms: number): string {
  if (ms < 5000) return "just now";
  if (ms < MINUTE) return `${Math.floor(ms / 1000)} s ago`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min ago`;
  return ms < 2 * DAY ? `${Math.floor(ms / HOUR)} h ago` : `${Math.floor(ms / DAY)} days ago`;
}

/** Formats a size in bytes for people: `640 B`, `12 KB`, `23 MB`, `1.2 GB`; 1 KB is 1000 bytes. */
export function formatSize(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 999_500) return `${Math.round(bytes / 1e3)} KB`;
  return bytes < 999.5e6 ? `${Math.round(bytes / 1e6)} MB` : `${roundToTenth(bytes / 1e9)} GB`;
}

/** Formats a number and a noun: `1 server`, `2 servers`, `2 processes`. @param plural by default the noun and an s */
export function count(number: number, noun: string, plural = `${noun}s`): string {
  return `${number} ${nounFor(number, noun, plural)}`;
}

/** The form of a noun, or of a verb, that goes with a number. @param plural by default the noun and an s */
export function nounFor(number: number, noun: string, plural = `${noun}s`): string {
  return number === 1 ? noun : plural;
}

function roundToTenth(value: number): string {
  return String(Number(value.toFixed(1)));
}
