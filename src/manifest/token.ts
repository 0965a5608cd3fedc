import process from "node:process";
import type { Complaint } from "./problem.ts";
import type { HttpToken } from "./schema.ts";
import type { Source } from "./source.ts";
import { explainScheme, parseTemplate } from "./template.ts";

/* What clients over HTTP have to bear, as `hub.httpToken` says it. */

/** That of the last source that has one. */
export function pickToken(sources: readonly Source[]): HttpToken | undefined {
  const source = sources.findLast(({ reading }) => reading.httpToken !== undefined);
  const text = source?.reading.httpToken;
  if (source === undefined || text === undefined) return undefined;
  return { text, file: source.file, baseDir: source.baseDir };
}

/** Every `${…}` in it that could never be filled in: plugins come later. */
export function findTokenFaults(text = ""): readonly Complaint[] {
  const place = { path: ["hub", "httpToken"], at: "value" } as const;
  return parseTemplate(text, "toolmux").flatMap((part) => {
    if (part.kind === "fault") return [{ ...place, message: `found ${part.message}` }];
    if (part.kind !== "scheme" || part.scheme === "secret") return [];
    return [{ ...place, message: `found ${explainScheme(part.scheme)}` }];
  });
}

/** What is to be said if it stands as it is in a file that others than its owner may read. */
export async function noteExposure({ text, file }: HttpToken): Promise<readonly string[]> {
  if (parseTemplate(text, "toolmux").some(({ kind }) => kind !== "text")) return [];
  const { stat } = process.getBuiltinModule("node:fs/promises");
  const mode = await stat(file).then(
    (stats) => stats.mode,
    () => 0,
  );
  if ((mode & OTHERS) === 0) return [];
  return [
    `${file}: hub.httpToken stands there as it is, and others can read the file: write \${secret:NAME}, \${env:NAME} or \${file:PATH}, or keep the file to yourself (chmod 600)`,
  ];
}
/** Permissions of the group and of everybody to read. */
const OTHERS = 0o044;
