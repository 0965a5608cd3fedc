/** URIs that clients see in place of the URIs at a server, and the places in results that hold URIs. Pure. */

import { type ByteRange, type Edit, utf8 } from "../base/bytes.ts";
import type { SkillRoots } from "./skills.ts";
import { JsonObject, readString } from "../base/json.ts";

/** Returns the URI that clients see in place of a URI at the server; undefined if both are the same. */
export type UriRenamer = (uri: string) => string | undefined;

export class ExposedUris {
  readonly skills: SkillRoots;
  /** The exposed URIs of renamed resources; by server, then by the URI at the server. */
  readonly #resources: ReadonlyMap<string, ReadonlyMap<string, string>>;

  constructor(resources: ReadonlyMap<string, ReadonlyMap<string, string>>, skills: SkillRoots) {
    this.#resources = resources;
    this.skills = skills;
  }

  /** The function that renames this server's URIs; undefined if none of them is renamed. */
  renamerFor(server: string): UriRenamer | undefined {
    const resources = this.#resources.get(server);
    if (resources === undefined && !this.skills.hasRenamed(server)) return undefined;
    return (uri) => resources?.get(uri) ?? this.skills.exposedUriOf(server, uri);
  }
}

/**
 * The edits that replace the server's URIs in a result by those that clients see: in links and embedded resources of
 * `content` (tools/call) and `messages` (prompts/get), in `contents` (resources/read), in `resources`
 * (resources/directory/read), in a `skill` (skills/get), and in the user interface of `_meta` (MCP Apps).
 */
export function renameInResult(bytes: Uint8Array, result: ByteRange, rename: UriRenamer): Edit[] {
  const edits: Edit[] = [];
  const object = JsonObject.at(bytes, result);
  const replace = (of: JsonObject, key: string): void => renameMember(of, key, rename, edits);
  const replaceBlock = (block: JsonObject): void => {
    if (block.string("type") === "resource_link") replace(block, "uri");
    replace(block.object("resource"), "uri");
  };
  object.objects("content").forEach(replaceBlock);
  for (const message of object.objects("messages")) {
    // The `content` of a prompt's message is one block, or in some protocol revisions an array of blocks.
    replaceBlock(message.object("content"));
    message.objects("content").forEach(replaceBlock);
  }
  for (const content of object.objects("contents")) replace(content, "uri");
  for (const child of object.objects("resources")) replace(child, "uri");
  const skill = object.member("skill");
  if (skill !== undefined) {
    replace(JsonObject.at(bytes, skill), "uri");
    edits.push(...renameSkillFiles(bytes, skill, rename));
  }
  const meta = object.object("_meta");
  replace(meta, "ui/resourceUri");
  replace(meta.object("ui"), "resourceUri");
  return edits;
}

/** The edits that rename the files of a skill entry (ext-skills, Skill Entries). */
export function renameSkillFiles(bytes: Uint8Array, skill: ByteRange, rename: UriRenamer): Edit[] {
  const edits: Edit[] = [];
  for (const file of JsonObject.at(bytes, skill).objects("resources")) {
    renameMember(file, "uri", rename, edits);
  }
  return edits;
}

function renameMember(object: JsonObject, key: string, rename: UriRenamer, edits: Edit[]): void {
  for (const member of object.all(key)) {
    const name = rename(readString(object.bytes, member) ?? "");
    if (name === undefined) continue;
    edits.push({ start: member.start, end: member.end, replacement: utf8(JSON.stringify(name)) });
  }
}
