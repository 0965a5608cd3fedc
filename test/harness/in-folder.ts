import { it } from "node:test";
import type { Manifest } from "../../src/manifest/manifest.ts";
import {
  type LoadSettings,
  type ManifestFolder,
  withManifestFolder,
} from "../fixtures/manifest/manifest-folder.ts";

/** A test in a folder of its own that has a home and a working directory. */
export function itIn(
  what: string,
  use: (folder: ManifestFolder) => Promise<unknown>,
  options = {},
): void {
  it(what, options, async () => void (await withManifestFolder(use)));
}

/** Writes files a, b, c …, in JSON where they begin with a brace and else in TOML. @returns their paths */
export function writeFiles(
  folder: ManifestFolder,
  ...texts: readonly string[]
): Promise<readonly string[]> {
  const extension = (text: string): string => (text.startsWith("{") ? "json" : "toml");
  const nameOf = (text: string, index: number): string => `${"abc"[index]}.${extension(text)}`;
  return Promise.all(texts.map((text, index) => folder.write(nameOf(text, index), text)));
}

/** Loads such files, which must be valid. */
export async function loadFiles(
  folder: ManifestFolder,
  texts: readonly string[],
  choice: LoadSettings = {},
): Promise<Manifest> {
  const files = await writeFiles(folder, ...texts);
  return (await folder.loadValid({ files, ...choice })).manifest;
}

/** A table of a server in TOML that runs something. */
export function serverTable(name: string, more = "", command = "x"): string {
  return `[servers.${name}]\ncommand = "${command}"\n${more}\n`;
}
