import { KINDS } from "../../catalog/listing.ts";
import { SkillMethod } from "../../catalog/skills.ts";
import { ModernTaskMethod } from "../../protocol/extension.ts";
import { LIST_METHODS, Method } from "../../protocol/legacy.ts";
import {
  type AnyMethodSpec,
  CALL_METHOD,
  DIRECTORY_METHOD,
  METHODS,
  SKILL_METHOD,
} from "../../router/params.ts";

/** Which list each list method asks for. */
export const LIST_METHOD_KINDS = new Map(KINDS.map((kind) => [LIST_METHODS[kind], kind]));

/** The methods that go to a server. */
export const RELAYED_METHODS: ReadonlyMap<string, AnyMethodSpec> = new Map([
  [Method.toolsCall, CALL_METHOD] as const,
  [SkillMethod.get, SKILL_METHOD] as const,
  [SkillMethod.readDirectory, DIRECTORY_METHOD] as const,
  ...[...METHODS].filter(([method, spec]) => method !== Method.subscribe && spec !== "task"),
  ...[ModernTaskMethod.get, ModernTaskMethod.update, ModernTaskMethod.cancel].map(
    (method) => [method, "task"] as const,
  ),
]);
