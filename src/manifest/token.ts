import process from "node:process";
import type { UnplacedProblem } from "./problems.ts";
import type { HttpToken } from "./schema.ts";
import type { ConfigSource } from "./source.ts";
import { unknownSchemeMessage, parseTemplate } from "./interpolate.ts";

/* `hub.httpToken`: the token that HTTP clients must send. */

/** The token of the last file that sets one. */
export function pickHttpToken(sources: readonly ConfigSource[]): HttpToken | undefined {
  const source = sources.findLast(({ fileConfig: reading }) => reading.httpToken !== undefined);
  const text = source?.fileConfig.httpToken;
  if (source === undefined || text === undefined) return undefined;
  return { text, file: source.file, baseDir: source.baseDir };
}

/** Every placeholder in it that is not supported: plugins are loaded later. */
export function findTokenProblems(text = ""): readonly UnplacedProblem[] {
  const place = { path: ["hub", "httpToken"], at: "value" } as const;
  return parseTemplate(text, "toolmux").flatMap((part) => {
    if (part.kind === "fault") return [{ ...place, message: `found ${part.message}` }];
    if (part.kind !== "scheme" || part.scheme === "secret") return [];
    return [{ ...place, message: `found ${unknownSchemeMessage(part.scheme)}` }];
  });
}

/** The warning for a plain-text token in a file that other users can read. */
export async function describeTokenExposure({ text, file }: HttpToken): Promise<readonly string[]> {
  if (parseTemplate(text, "toolmux").some(({ kind }) => kind !== "text")) return [];
  const { stat } = process.getBuiltinModule("node:fs/promises");
  const mode = await stat(file).then(
    (stats) => stats.mode,
    () => 0,
  );
  if ((mode & OTHERS_READ) === 0) return [];
  return [
    `${file}: hub.httpToken stands there as it is, and others can read the file: write \${secret:NAME}, \${env:NAME} or \${file:PATH}, or keep the file to yourself (chmod 600)`,
  ];
}
/** Read permission of group and others. */
const OTHERS_READ = 0o044;
