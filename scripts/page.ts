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
import { basename, join } from "node:path";
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
    bundle(folder, ["page.tsx", "page.css"]);
    const html = readFileSync(join(ROOT, SOURCES, "index.html"), "utf8");
    const texts = new Map(
      readdirSync(folder).map((name) => [name, readFileSync(join(folder, name), "utf8")]),
    );
    const scripts = await shorten([...texts].filter(([name]) => name.endsWith(".js")));
    return { "index.html": html, ...Object.fromEntries([...texts, ...scripts]) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Bundles sources into a folder. What they import dynamically, and what several files import, is in files of its own. */
function bundle(folder: string, names: readonly string[]): void {
  const sources = names.map((name) => `${SOURCES}/${name}`);
  const chunks = ["--splitting", "--chunk-naming=[name]-[hash].[ext]"];
  const args = ["build", "--production", "--target=browser", ...chunks, "--outdir", folder];
  const { status, stdout, stderr } = spawnSync(process.execPath, [...args, ...sources], {
    cwd: ROOT,
    encoding: "utf8",
    env: { ...process.env, NODE_ENV: "production" },
  });
  if (status !== 0) throw new Error(`The page cannot be bundled:\n${stdout}${stderr}`.trim());
}

/**
 * Minifies scripts to fewer bytes than the bundler's own minifier does. This takes seconds, so the results are cached
 * in dist for the next build of the same scripts by the same minifier.
 * @throws {Error} if a script cannot be minified
 */
async function shorten(
  scripts: readonly (readonly [name: string, script: string])[],
): Promise<readonly (readonly [name: string, script: string])[]> {
  const folder = join(FOLDER, "short");
  mkdirSync(folder, { recursive: true });
  const used = new Set<string>();
  const short: (readonly [string, string])[] = [];
  for (const [name, script] of scripts) {
    const digest = createHash("sha256").update(terser.version).update(script).digest("hex");
    const file = join(folder, `${digest}.js`);
    used.add(basename(file));
    if (!existsSync(file)) {
      const { code } = await minify(script, { module: true, ecma: 2020 });
      if (code === undefined) throw new Error(`${name} cannot be made smaller.`);
      writeFileSync(file, code);
    }
    short.push([name, readFileSync(file, "utf8")]);
  }
  for (const old of readdirSync(folder))
    if (!used.has(old)) rmSync(join(folder, old), { force: true });
  return short;
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
