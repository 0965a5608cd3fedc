import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const ROOT = new URL("../../", import.meta.url);

/** A block of a page that shows what a terminal shows. */
export interface Snippet {
  /** The path of the page from the root of the repository. */
  readonly page: string;
  /** The number of the block's first line, from 1. */
  readonly line: number;
  /** The first line, without the prompt, which names the block within its page; ` (2)` follows the second equal one. */
  readonly title: string;
  /** The typed commands, and the lines that they print; a block of output alone has one step without a command. */
  readonly steps: readonly Step[];
  /** The reason in `<!-- not run: reason -->` before the block. */
  readonly exempt: string | undefined;
}

interface Step {
  readonly command: string | undefined;
  readonly output: readonly string[];
}

/** The console blocks of README.md and docs/*.md. */
export function readSnippets(): readonly Snippet[] {
  const pages = readdirSync(new URL("docs", ROOT)).filter((name) => name.endsWith(".md"));
  return ["README.md", ...pages.sort().map((name) => `docs/${name}`)].flatMap((page) =>
    parseSnippets(page, readFileSync(fileURLToPath(new URL(page, ROOT)), "utf8")),
  );
}

export function parseSnippets(page: string, text: string): readonly Snippet[] {
  const lines = text.split("\n");
  const seen = new Map<string, number>();
  return lines.flatMap((line, at) => {
    const indent = /^( *)```console$/.exec(line)?.[1];
    if (indent === undefined) return [];
    const end = lines.indexOf(`${indent}\`\`\``, at);
    const body = lines.slice(at + 1, end).map((each) => each.slice(indent.length));
    const before = lines.slice(0, at).findLast((each) => each !== "") ?? "";
    const exempt = /^ *<!-- not run: (.+) -->$/.exec(before)?.[1];
    const first = (body[0] ?? "").replace(/^\$ /, "");
    const count = (seen.get(first) ?? 0) + 1;
    seen.set(first, count);
    const title = count === 1 ? first : `${first} (${count})`;
    return [{ page, line: at + 2, title, steps: stepsOf(body), exempt }];
  });
}

function stepsOf(body: readonly string[]): readonly Step[] {
  const steps: { command: string | undefined; output: string[] }[] = [];
  for (const line of body) {
    if (line.startsWith("$ ")) steps.push({ command: line.slice(2), output: [] });
    else if (steps.length === 0) steps.push({ command: undefined, output: [line] });
    else steps.at(-1)?.output.push(line);
  }
  return steps;
}

/** Patterns of what differs between two runs, and the word that stands for it. The order counts. */
const UNSTABLE: readonly (readonly [pattern: RegExp, word: string])[] = [
  // oxlint-disable-next-line no-control-regex
  [/\u001b\[[0-9;?]*[A-Za-z]/g, ""],
  [/\b\d+-[\w…]+\.sock\b/g, "SOCKET"],
  [/\b\d{8}T\d{6}Z\b/g, "TIMESTAMP"],
  [/\b[\d,.]+ ?(?:µs|ms|s|m|min|h|seconds?|minutes?)\b(?: ago)?/g, "TIME"],
  [/\bjust now\b/g, "TIME"],
  [/\b[\d,.]+ ?(?:B|KB|KiB|MB|MiB|GB|GiB)\b/g, "SIZE"],
  [/\b[\d,.]+\/s\b/g, "RATE"],
  // The mark of a figure that is within noise.
  [/\* ?(?=[+−]|[\d.]+%)/g, ""],
  [/[+−]TIME/g, "TIME"],
  [/\b[\d.]+%/g, "PERCENT"],
  [/(?<![\d.])\d+\.\d+\.\d+(?!\d|\.\d)(?:-[\w.-]+)?/g, "VERSION"],
  [/\b[0-9a-f]{8,64}\b/g, "ID"],
  [/\bcall([ :])\d+/g, "call$1NUMBER"],
  // Process IDs and numbers of calls; parts of dates are none, nor are ports, which the tests set themselves.
  [/(?<![\d:.-])\d[\d,]*\d(?![\d-]|\.\d)/g, "NUMBER"],
  // A legend that is printed where a mark is.
  [/^\* within noise.*$/, ""],
  [/\s+/g, " "],
  [/ $/, ""],
];

/** The line with a word in the place of each part that differs between two runs. */
export function stabilize(line: string): string {
  return UNSTABLE.reduce((text, [pattern, word]) => text.replace(pattern, word), line);
}

/** Whether a line that was printed is the one that a page shows; `…` there stands for anything. */
function isLine(shown: string, printed: string): boolean {
  const parts = stabilize(shown).split("…");
  const pattern = parts.map((part) => part.replaceAll(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`));
  return new RegExp(`^${pattern.join(".*")}$`, "u").test(stabilize(printed));
}

/**
 * The first line that a page shows and the program did not print there; undefined if all of them were printed. `…` alone on
 * a line stands for any number of lines.
 * @param isWhole whether the lines are all that was printed; otherwise they may be a part of it
 */
export function firstDifference(
  shown: readonly string[],
  printed: readonly string[],
  isWhole: boolean,
): string | undefined {
  const lines = shown.filter((line) => stabilize(line).trim() !== "");
  const real = printed.filter((line) => stabilize(line).trim() !== "");
  let furthest = 0;
  const match = (at: number, from: number): boolean => {
    furthest = Math.max(furthest, at);
    const line = lines[at];
    if (line === undefined) return !isWhole || from === real.length;
    if (line.trim() === "…")
      return (
        real.slice(from).some((_, skip) => match(at + 1, from + skip)) || match(at + 1, real.length)
      );
    const next = real[from];
    return next !== undefined && isLine(line, next) && match(at + 1, from + 1);
  };
  const starts = isWhole ? [0] : real.map((_, at) => at);
  if (starts.some((start) => match(0, start))) return undefined;
  return lines[furthest] ?? "the end of the output";
}
