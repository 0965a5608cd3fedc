/* Settings of the manifest that match nothing that a server lists. Pure. */

import { count } from "../base/format.ts";
import type { ExposureNote, ExposureRules, NamedKind } from "./exposure.ts";
import { type Kind, KIND_NOUNS, type ListedItem } from "./listing.ts";
import { matchesGlob } from "./names.ts";
import { type SkillRules, skillNameOf } from "./skills.ts";

/** The manifest's tables whose keys are names of tools or prompts at the server. */
const TABLES = ["describe", "meta", "annotations", "rename", "timeout"] as const;
/** Those whose keys are names or globs. */
const GLOB_TABLES = ["approval", "limits"] as const;

/**
 * Makes an `ExposureNote` for each glob and name in a server's rules for tools or prompts that matches nothing.
 * @param listed what the server lists
 * @param shown the part of `listed` that the filter and the plugins allow
 */
export function idleRulesOf(
  server: string,
  list: NamedKind,
  rules: ExposureRules,
  listed: readonly ListedItem[],
  shown: readonly ListedItem[],
): readonly ExposureNote[] {
  const { allow, deny } = rules;
  const keysOf = (table: (typeof GLOB_TABLES)[number]): readonly string[] =>
    Object.keys(rules[table] ?? {});
  const globTables = GLOB_TABLES.map((table) => [table, keysOf(table).filter(isGlob)] as const);
  const globs = { allow, deny, ...Object.fromEntries(globTables) };
  const notes = idleGlobs(server, list, globs, listed, ({ key }, glob) => matchesGlob(glob, key));
  const names = [
    ...TABLES.flatMap((table) =>
      Object.keys(rules[table] ?? {}).map((name) => [table, name] as const),
    ),
    ...GLOB_TABLES.flatMap((table) =>
      keysOf(table)
        .filter((key) => !isGlob(key))
        .map((name) => [table, name] as const),
    ),
  ];
  if (names.length === 0) return notes;
  const shownNames = new Set(shown.map(({ key }) => key));
  const listedNames = new Set(listed.map(({ key }) => key));
  const seen = new Set<string>();
  for (const [table, name] of names) {
    if (shownNames.has(name) || seen.has(name)) continue;
    seen.add(name);
    const text = listedNames.has(name)
      ? `${list}.${table} ${JSON.stringify(name)} has no effect: the ${KIND_NOUNS[list]} is hidden.`
      : describeNoMatch(`${list}.${table}`, name, list, listed.length);
    notes.push({ server, list, remoteName: name, kind: "idleOverride", text });
  }
  return notes;
}

/**
 * Makes an `ExposureNote` for each glob in a server's rules for skills that matches no skill.
 * @param listed the skills that the server lists
 */
export function idleSkillRulesOf(
  server: string,
  rules: SkillRules,
  listed: readonly ListedItem[],
): readonly ExposureNote[] {
  return idleGlobs(
    server,
    "skills",
    { allow: rules.allow, deny: rules.deny },
    listed,
    ({ key }, glob) => matchesGlob(glob, skillNameOf(key)) || matchesGlob(glob, key),
  );
}

function isGlob(name: string): boolean {
  return /[*?]/.test(name);
}

/** @param rules globs, by the key of the manifest that holds them */
function idleGlobs(
  server: string,
  list: Kind,
  rules: Readonly<Record<string, readonly string[] | undefined>>,
  listed: readonly ListedItem[],
  matches: (item: ListedItem, glob: string) => boolean,
): ExposureNote[] {
  return Object.entries(rules).flatMap(([key, globs = []]) =>
    globs
      .filter((glob) => !listed.some((item) => matches(item, glob)))
      .map((remoteName): ExposureNote => {
        const text = describeNoMatch(`${list}.${key}`, remoteName, list, listed.length);
        return { server, list, remoteName, kind: "idleFilter", text };
      }),
  );
}

function describeNoMatch(setting: string, name: string, list: Kind, total: number): string {
  const rule = `${setting} ${JSON.stringify(name)}`;
  const noun = KIND_NOUNS[list];
  if (total === 0) return `${rule} matches nothing: the server lists no ${noun}s.`;
  return `${rule} matches none of its ${count(total, noun)}.`;
}

/** Whether a note is about a setting of the manifest that matches nothing. */
export function isIdleRule({ kind }: { readonly kind: string }): boolean {
  return kind === "idleFilter" || kind === "idleOverride";
}

/** The note as one line: `files: tools.deny "*_delete" matches none of its 14 tools.` */
export function describeIdleRule({ server, text }: ExposureNote): string {
  return `${server}: ${text}`;
}
