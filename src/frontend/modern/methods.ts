import { KINDS } from "../../catalog/listing.ts";
import { SkillMethod } from "../../catalog/skills.ts";
import { TicketMethod } from "../../protocol/extension.ts";
import { LIST_METHODS, Method } from "../../protocol/legacy.ts";
import { type AnyManner, CALL, DIRECTORY, MANNERS, SKILL } from "../../router/params.ts";

/** Which list each list method asks for. */
export const LISTED = new Map(KINDS.map((kind) => [LIST_METHODS[kind], kind]));

/** The methods that go to a server. */
export const RELAYED: ReadonlyMap<string, AnyManner> = new Map([
  [Method.toolsCall, CALL] as const,
  [SkillMethod.get, SKILL] as const,
  [SkillMethod.readDirectory, DIRECTORY] as const,
  ...[...MANNERS].filter(([method, it]) => method !== Method.subscribe && it !== "task"),
  ...[TicketMethod.get, TicketMethod.update, TicketMethod.cancel].map(
    (method) => [method, "task"] as const,
  ),
]);
