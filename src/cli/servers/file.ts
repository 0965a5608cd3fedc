import { resolve } from "node:path";
import { findUserFile } from "../../manifest/edit/file.ts";
import { expandHome } from "../../manifest/folders.ts";
import type { Invocation, World } from "../command.ts";

/** The manifest that is to be changed: the one that is named, or else the user's own, whether it is there yet or not. Absolute. */
export function findFile({ values, config }: Invocation, world: World): Promise<string> {
  const named = values.get("file")?.at(-1) ?? config.at(-1);
  if (named === undefined) return findUserFile(world);
  return Promise.resolve(resolve(world.cwd, expandHome(named, world.env)));
}
