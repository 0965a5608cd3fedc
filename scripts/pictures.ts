/**
 * Draws docs/pictures/*.svg: the output of commands on a terminal of 80 columns, from dist/toolmux with real servers
 * in a temporary home folder. Needs `script` (util-linux) and the npm packages; run it as `npm run pictures`.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const FOLDER = join(ROOT, "docs", "pictures");
const COLUMNS = 80;

/**
 * The pictures, and the command lines that each shows. A command may fail, because one server of the manifest cannot
 * start.
 */
const PICTURES: Readonly<Record<string, readonly string[]>> = {
  help: ["toolmux help"],
  status: ["toolmux status"],
  list: ["toolmux list memory", "toolmux describe files__read_text_file"],
  doctor: ["toolmux doctor"],
  demo: ["toolmux demo"],
};

const MANIFEST = `
[servers.files]
command = "mcp-server-filesystem"
args = ["\${env:HOME}/work"]

[servers.memory]
command = "mcp-server-memory"
env = { MEMORY_FILE_PATH = "\${env:HOME}/memory.json" }

[servers.notes]
command = "notes-server"
`;

/** Runs a command line in a terminal. @returns what it printed, with escape sequences */
function runInTerminal(line: string, env: Readonly<Record<string, string>>, cwd: string): string {
  const words = ["-qec", `stty cols ${COLUMNS} rows 50; ${line}; true`, "/dev/null"];
  return execFileSync("script", words, { cwd, env, encoding: "utf8" });
}

/** The style of characters. `color` is an index into `PALETTE`; undefined is the default color. */
interface Look {
  readonly color: number | undefined;
  readonly isBold: boolean;
  readonly isDim: boolean;
}

const PLAIN: Look = { color: undefined, isBold: false, isDim: false };

/** The colors 30 to 37 of terminals, on a dark background. */
const PALETTE = "#6e7681 #ff7b72 #7ee787 #e3b341 #79c0ff #d2a8ff #76e3ea #e6edf3".split(" ");
const FOREGROUND = "#e6edf3";
const BACKGROUND = "#0d1117";

/** A run of characters that look alike. */
interface Run {
  readonly look: Look;
  readonly text: string;
}

/** The lines on the screen after this output. Of a line that was erased, only the text after the erasure remains. */
export function parseScreen(output: string): readonly (readonly Run[])[] {
  let look = PLAIN;
  return output
    .replaceAll("\r\n", "\n")
    .trimEnd()
    .split("\n")
    .map((line) => {
      const runs: Run[] = [];
      // oxlint-disable-next-line no-control-regex
      for (const part of line.split(/(\u001b\[[0-9;]*[A-Za-z])/)) {
        // oxlint-disable-next-line no-control-regex
        const [, codes, letter] = /^\u001b\[([0-9;]*)([A-Za-z])$/.exec(part) ?? [];
        if (letter === "m")
          for (const code of (codes || "0").split(";")) look = changeLook(look, +code);
        else if (letter === "K") runs.length = 0;
        else if (letter === undefined && part !== "")
          runs.push({ look, text: part.replaceAll("\r", "") });
      }
      return runs;
    })
    .flatMap(wrapRuns);
}

/** Wraps a line at the width of the terminal. */
function wrapRuns(runs: readonly Run[]): Run[][] {
  const lines: Run[][] = [[]];
  let column = 0;
  for (const { look, text } of runs) {
    for (let at = 0; at < text.length;) {
      if (column === COLUMNS) {
        lines.push([]);
        column = 0;
      }
      const piece = text.slice(at, at + COLUMNS - column);
      lines.at(-1)?.push({ look, text: piece });
      at += piece.length;
      column += piece.length;
    }
  }
  return lines;
}

/** Applies one code of "Select Graphic Rendition" (ECMA-48, 8.3.117). */
function changeLook(look: Look, code: number): Look {
  if (code === 0) return PLAIN;
  if (code === 1) return { ...look, isBold: true };
  if (code === 2) return { ...look, isDim: true };
  if (code === 22) return { ...look, isBold: false, isDim: false };
  if (code === 39) return { ...look, color: undefined };
  if (code >= 30 && code <= 37) return { ...look, color: code - 30 };
  return code >= 90 && code <= 97 ? { ...look, color: code - 90 } : look;
}

const FONT_SIZE = 14;
const COLUMN_WIDTH = 8.43;
const LINE_HEIGHT = 19;
const MARGIN = 16;

/** Draws lines as an SVG. */
export function drawScreen(lines: readonly (readonly Run[])[], title: string): string {
  const width = Math.ceil(COLUMNS * COLUMN_WIDTH) + 2 * MARGIN;
  const height = lines.length * LINE_HEIGHT + 2 * MARGIN;
  const texts = lines.flatMap((runs, row) => {
    const y = MARGIN + row * LINE_HEIGHT + FONT_SIZE;
    let column = 0;
    return runs.flatMap(({ look, text }) => {
      const start = column;
      column += text.length;
      const color = look.color === undefined ? FOREGROUND : (PALETTE[look.color] ?? FOREGROUND);
      const attributes = [
        `fill="${color}"`,
        ...(look.isBold ? ['font-weight="bold"'] : []),
        ...(look.isDim ? ['opacity="0.6"'] : []),
      ].join(" ");
      // SVG collapses multiple spaces, so texts that are separated by several spaces are placed separately.
      return [...text.matchAll(/\S+(?: \S+)*/g)].map(({ 0: words, index }) => {
        const x = (MARGIN + (start + index) * COLUMN_WIDTH).toFixed(1);
        const length = (words.length * COLUMN_WIDTH).toFixed(1);
        return `    <text x="${x}" y="${y}" textLength="${length}" ${attributes}>${escapeXml(words)}</text>`;
      });
    });
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escapeXml(title)}">`,
    `  <title>${escapeXml(title)}</title>`,
    `  <rect width="100%" height="100%" rx="8" fill="${BACKGROUND}"/>`,
    `  <g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="${FONT_SIZE}">`,
    ...texts,
    "  </g>",
    "</svg>",
    "",
  ].join("\n");
}

function escapeXml(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}

function main(): void {
  const home = mkdtempSync(join(tmpdir(), "toolmux-pictures-"));
  try {
    const bin = join(home, "bin");
    const config = join(home, ".config", "toolmux");
    for (const folder of [bin, config, join(home, "work"), FOLDER])
      mkdirSync(folder, { recursive: true });
    symlinkSync(join(ROOT, "dist", "toolmux"), join(bin, "toolmux"));
    writeFileSync(join(config, "toolmux.toml"), MANIFEST, { mode: 0o600 });
    const folders = [bin, join(ROOT, "node_modules", ".bin"), dirname(process.execPath)];
    const env = {
      HOME: home,
      // Not the PATH of the caller: the error of a missing program names programs that are spelled alike.
      PATH: [...folders, "/usr/bin", "/bin"].join(":"),
      SHELL: "/bin/sh",
      TERM: "xterm-256color",
      TOOLMUX_KEYCHAIN: "off",
    };
    const prompt = { look: { ...PLAIN, color: 2 }, text: "$ " };
    for (const [name, lines] of Object.entries(PICTURES)) {
      const screen = lines.flatMap((line, at) => [
        ...(at === 0 ? [] : [[]]),
        [prompt, { look: PLAIN, text: line }],
        ...parseScreen(runInTerminal(line, env, join(home, "work")).replaceAll(home, "/home/you")),
      ]);
      writeFileSync(join(FOLDER, `${name}.svg`), drawScreen(screen, lines.join("; ")));
      console.error(`docs/pictures/${name}.svg  ${screen.length} lines`);
    }
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
}

if (import.meta.main) main();
