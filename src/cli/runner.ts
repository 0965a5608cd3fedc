import { alternativeCommands } from "../manifest/package.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import { resolveCommand } from "../process/path-lookup.ts";
import type { CommandContext } from "./command.ts";

/** Of several commands the first that is there now; undefined if none is. */
export async function findInstalledRunner(
  commands: readonly string[],
  { env, cwd }: Pick<CommandContext, "env" | "cwd">,
): Promise<string | undefined> {
  for (const command of commands) {
    const morePath = (): Promise<undefined> => Promise.resolve(undefined);
    const search = { server: "", command, cwd, path: env["PATH"], extraPath: morePath };
    const isThere = await resolveCommand(search).then(
      () => true,
      () => false,
    );
    if (isThere) return command;
  }
  return undefined;
}

/** A server as it would be started now: what comes as a package by the first that is there for it. */
export async function withInstalledRunner<Spec extends RunnableServer>(
  spec: Spec,
  world: Pick<CommandContext, "env" | "cwd">,
): Promise<Spec> {
  if (spec.kind !== "stdio" || spec.package === undefined) return spec;
  const others = alternativeCommands(spec.package, spec.args);
  const found = await findInstalledRunner(
    [spec.command, ...others.map((way) => way.command)],
    world,
  );
  const way = others.find(({ command }) => command === found);
  return way === undefined ? spec : { ...spec, ...way };
}
