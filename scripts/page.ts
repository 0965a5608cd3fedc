/**
 * Bundles the page of the dashboard (src/dashboard/page) into dist/dashboard/page.mjs: a module that contains the
 * page's files as texts, so that every runtime and every bundler can load it. Run by bun; scripts/build.ts does it
 * before it compiles.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { minify } from "terser";
import terser from "terser/package.json" with { type: "json" };
import type { PageFiles } from "../src/dashboard/page-files.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const SOURCES = "src/dashboard/page";
const FOLDER = join(ROOT, "dist/dashboard");

/** Bundles the page. @throws {Error} with the bundler's output */
export async function bundlePage(): Promise<PageFiles> {
  const folder = mkdtempSync(join(tmpdir(), "toolmux-page-"));
  try {
    // The module of the charts is bundled into a separate file, which the page imports.
    bundle(folder, ["page.tsx", "page.css"], ["--external=*/charts.ts"]);
    bundle(folder, ["charts.ts"]);
    const script = readFileSync(join(folder, "page.js"), "utf8");
    return {
      html: readFileSync(join(ROOT, SOURCES, "index.html"), "utf8"),
      script: await shorten("page", script.replaceAll('"./charts.ts"', '"./charts.js"')),
      charts: await shorten("charts", readFileSync(join(folder, "charts.js"), "utf8")),
      style: readFileSync(join(folder, "page.css"), "utf8"),
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function bundle(folder: string, names: readonly string[], options: readonly string[] = []): void {
  const sources = names.map((name) => `${SOURCES}/${name}`);
  const args = ["build", "--production", "--target=browser", ...options, "--outdir", folder];
  const { status, stdout, stderr } = spawnSync(process.execPath, [...args, ...sources], {
    cwd: ROOT,
    encoding: "utf8",
    env: { ...process.env, NODE_ENV: "production" },
  });
  if (status !== 0) throw new Error(`The page cannot be bundled:\n${stdout}${stderr}`.trim());
}

/**
 * Minifies a script to fewer bytes than the bundler's own minifier does. This takes seconds, so the result is cached
 * in dist for the next build of the same script by the same minifier.
 * @throws {Error} if the script cannot be minified
 */
async function shorten(name: string, script: string): Promise<string> {
  const digest = createHash("sha256").update(terser.version).update(script).digest("hex");
  const file = join(FOLDER, `short-${name}-${digest}.js`);
  if (existsSync(file)) return readFileSync(file, "utf8");
  const { code } = await minify(script, { module: true, ecma: 2020 });
  if (code === undefined) throw new Error("The page cannot be made smaller.");
  mkdirSync(FOLDER, { recursive: true });
  for (const old of readdirSync(FOLDER))
    if (old.startsWith(`short-${name}-`)) rmSync(join(FOLDER, old), { force: true });
  writeFileSync(file, code);
  return code;
}

/** Bundles the page into dist. @throws {Error} as `bundlePage` */
export async function writePage(): Promise<void> {
  const text = `export const PAGE = ${JSON.stringify(await bundlePage())};\n`;
  mkdirSync(FOLDER, { recursive: true });
  const draft = join(FOLDER, `page.${process.pid}.draft`);
  writeFileSync(draft, text);
  renameSync(draft, join(FOLDER, "page.mjs"));
}

if (import.meta.main) await writePage();
