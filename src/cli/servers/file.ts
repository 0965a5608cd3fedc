import { resolve } from "node:path";
import { type Edit, findUserFile } from "../../manifest/edit/file.ts";
import { expandHome, stateFolder } from "../../manifest/folders.ts";
import { isTrusted, trust } from "../../manifest/trust.ts";
import type { Invocation, World } from "../command.ts";

/** The manifest that is to be changed: the one that is named, or else the user's own, whether it is there yet or not. Absolute. */
export function findFile({ values, config }: Invocation, world: World): Promise<string> {
  const named = values.get("file")?.at(-1) ?? config.at(-1);
  if (named === undefined) return findUserFile(world);
  return Promise.resolve(resolve(world.cwd, expandHome(named, world.env)));
}

/** Writes a change. A file that was trusted as it was is trusted as it is then: it is its user who has changed it. */
export async function writeEdit(edit: Edit, world: World): Promise<void> {
  const { file, before } = edit;
  const folder = stateFolder(world.env, world.platform);
  const wasTrusted = before !== undefined && (await isTrusted(file, before, folder));
  await edit.write();
  if (wasTrusted) await trust(file, folder);
}
