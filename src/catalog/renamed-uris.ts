/** Exposed URIs that differ from a server's own, and the places in results that hold URIs. Pure. */

import { type ByteRange, type Edit, utf8 } from "../base/bytes.ts";
import type { SkillRoots } from "./skills.ts";
import { type JsonMember, lastMember, readString, scanArray, scanObject } from "../base/json.ts";

/** Returns the exposed URI for one of the server's own; undefined if both are the same. */
export type UriRenamer = (uri: string) => string | undefined;

/** The exposed URIs of all servers in one catalog. */
export class ExposedUris {
  /** The owner of each skill. */
  readonly skills: SkillRoots;
  /** Renamed single resources, by server, then by the server's own URI. */
  readonly #resources: ReadonlyMap<string, ReadonlyMap<string, string>>;

  constructor(resources: ReadonlyMap<string, ReadonlyMap<string, string>>, skills: SkillRoots) {
    this.#resources = resources;
    this.skills = skills;
  }

  /** The renaming function of that server; undefined if none of its URIs is renamed. */
  renamerFor(server: string): UriRenamer | undefined {
    const resources = this.#resources.get(server);
    if (resources === undefined && !this.skills.hasRenamed(server)) return undefined;
    return (uri) => resources?.get(uri) ?? this.skills.exposedUriOf(server, uri);
  }
}

/**
 * The edits that put exposed URIs into a result: in links and embedded resources of `content` (tools/call) and
 * `messages` (prompts/get), in `contents` (resources/read), in `resources` (resources/directory/read), in a `skill`
 * (skills/get), and in the user interface of `_meta` (MCP Apps).
 */
export function renameInResult(bytes: Uint8Array, result: ByteRange, rename: UriRenamer): Edit[] {
  const edits: Edit[] = [];
  const members = membersAt(bytes, result);
  const replace = (object: readonly JsonMember[], key: string): void => {
    renameMember(bytes, object, key, rename, edits);
  };
  const replaceBlock = (block: ByteRange): void => {
    const own = membersAt(bytes, block);
    if (readString(bytes, lastMember(own, "type")) === "resource_link") replace(own, "uri");
    const resource = lastMember(own, "resource");
    if (resource !== undefined) replace(membersAt(bytes, resource), "uri");
  };
  for (const block of itemsAt(bytes, lastMember(members, "content"))) replaceBlock(block);
  for (const message of itemsAt(bytes, lastMember(members, "messages"))) {
    const content = lastMember(membersAt(bytes, message), "content");
    if (content === undefined) continue;
    const blocks = scanArray(bytes, content.start)?.items ?? [content];
    for (const block of blocks) replaceBlock(block);
  }
  for (const content of itemsAt(bytes, lastMember(members, "contents"))) {
    replace(membersAt(bytes, content), "uri");
  }
  for (const child of itemsAt(bytes, lastMember(members, "resources"))) {
    replace(membersAt(bytes, child), "uri");
  }
  const skill = lastMember(members, "skill");
  if (skill !== undefined) {
    replace(membersAt(bytes, skill), "uri");
    edits.push(...renameSkillFiles(bytes, skill, rename));
  }
  const meta = lastMember(members, "_meta");
  if (meta !== undefined) {
    const own = membersAt(bytes, meta);
    replace(own, "ui/resourceUri");
    const ui = lastMember(own, "ui");
    if (ui !== undefined) replace(membersAt(bytes, ui), "resourceUri");
  }
  return edits;
}

/** The edits for the files of a skill entry (ext-skills, Skill Entries). */
export function renameSkillFiles(bytes: Uint8Array, skill: ByteRange, rename: UriRenamer): Edit[] {
  const edits: Edit[] = [];
  const members = membersAt(bytes, skill);
  for (const file of itemsAt(bytes, lastMember(members, "resources"))) {
    renameMember(bytes, membersAt(bytes, file), "uri", rename, edits);
  }
  return edits;
}

function renameMember(
  bytes: Uint8Array,
  object: readonly JsonMember[],
  key: string,
  rename: UriRenamer,
  edits: Edit[],
): void {
  for (const member of object) {
    if (member.key !== key) continue;
    const name = rename(readString(bytes, member) ?? "");
    if (name === undefined) continue;
    edits.push({ start: member.start, end: member.end, replacement: utf8(JSON.stringify(name)) });
  }
}

function membersAt(bytes: Uint8Array, { start }: Pick<ByteRange, "start">): readonly JsonMember[] {
  return scanObject(bytes, start)?.items ?? [];
}

function itemsAt(bytes: Uint8Array, list: ByteRange | undefined): readonly ByteRange[] {
  return (list && scanArray(bytes, list.start)?.items) ?? [];
}
