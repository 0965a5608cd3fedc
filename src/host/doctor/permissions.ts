import { lstat } from "node:fs/promises";
import { dirname } from "node:path";
import { count } from "../../base/format.ts";
import { parseTemplate } from "../../manifest/interpolate.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import { httpTokensOf } from "../../manifest/named-clients.ts";
import { findWritableFiles } from "../../operations/check.ts";
import type { Finding, Fix } from "./findings.ts";
import { plaintextSecretsOf } from "./manifest.ts";
import type { FileEntry, OwnFiles } from "./own-files.ts";

/** Permission bits of group and others. */
const GROUP_AND_OTHERS = 0o077;
const GROUP_AND_OTHERS_READ = 0o044;

/** Checks what other users may do with the manifest's files and with toolmux's private files. */
export async function checkPermissions(
  manifest: Manifest | undefined,
  { privateEntries }: OwnFiles,
): Promise<readonly Finding[]> {
  return [
    ...(await checkManifestPermissions(manifest)),
    ...(await findWritableManifests(manifest)),
    ...checkOwnPermissions(privateEntries),
  ];
}

/** Other users who can change a manifest can make toolmux start what they like. */
async function findWritableManifests(manifest: Manifest | undefined): Promise<readonly Finding[]> {
  const files = await findWritableFiles(manifest?.sources ?? []);
  return Promise.all(
    files.map(async (path): Promise<Finding> => {
      const { mode } = await lstat(path);
      return {
        code: "TM703",
        subject: path,
        text: "Other users can change this file, and so what toolmux starts.",
        advice: `Take that from them: chmod go-w ${path}`,
        fixes: [{ kind: "permit", path, mode: mode & 0o755 }],
      };
    }),
  );
}

async function checkManifestPermissions(
  manifest: Manifest | undefined,
): Promise<readonly Finding[]> {
  const { sources = [], servers = [] } = manifest ?? {};
  const tokens = httpTokensOf(manifest ?? {});
  const found = await Promise.all(
    sources.map(async (path): Promise<readonly Finding[]> => {
      const stats = await lstat(path).catch(() => undefined);
      if (stats === undefined || (stats.mode & GROUP_AND_OTHERS_READ) === 0) return [];
      const own = servers.filter((spec) => "baseDir" in spec && spec.baseDir === dirname(path));
      const isToken = tokens.some(
        ({ file, text }) =>
          file === path && parseTemplate(text, "toolmux").every(({ kind }) => kind === "text"),
      );
      if (!isToken && own.every((spec) => plaintextSecretsOf(spec).length === 0)) return [];
      const text =
        "It contains what looks like secrets in plain text, and other users can read the file.";
      const advice = `Make it private: chmod 600 ${path}`;
      const mode = stats.mode & 0o700;
      return [
        { code: "TM701", subject: path, text, advice, fixes: [{ kind: "permit", path, mode }] },
      ];
    }),
  );
  return found.flat();
}

function checkOwnPermissions(entries: readonly FileEntry[]): readonly Finding[] {
  const accessible = entries.filter(({ mode }) => (mode & GROUP_AND_OTHERS) !== 0);
  const [first] = accessible;
  if (first === undefined) return [];
  const fixes = accessible.map(({ path, mode }): Fix => ({
    kind: "permit",
    path,
    mode: mode & 0o700,
  }));
  const more =
    accessible.length > 1
      ? `, and ${count(accessible.length - 1, "other entry", "other entries")}`
      : "";
  const text = `Other users can access this private file of toolmux${more}.`;
  return [
    {
      code: "TM702",
      subject: first.path,
      text,
      advice: "To correct it: toolmux doctor --fix",
      fixes,
    },
  ];
}
