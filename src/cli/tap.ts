import type { Env } from "../base/paths.ts";
import { ownCommand } from "../base/runtime.ts";

/** The variable by which `toolmux bench` has a hub put a tap in front of each server that it starts; no server gets it. */
export const PROXY_VARIABLE = "TOOLMUX_TAP";

/** What is started, and what in its place if it is not there. */
interface Program {
  readonly command: string;
  readonly args: readonly string[];
  readonly others?: readonly Pick<Program, "command" | "args">[] | undefined;
}

/** Its value. @param delay by which what a server says is held back, in ms; @param folder where taps report */
export function formatProxyVariable(folder: string, delay: number): string {
  return `${delay}:${folder}`;
}

/** The program with the tap in front of it that is wanted; else as it is. */
export function withBenchProxy<P extends Program>(program: P, env: Env): P {
  const [, delay, folder] = /^(\d+):(.+)$/s.exec(env[PROXY_VARIABLE] ?? "") ?? [];
  if (delay === undefined || folder === undefined) return program;
  const [own, ...before] = ownCommand();
  const tap = ({ command, args }: Pick<Program, "command" | "args">) => ({
    command: own,
    args: [...before, "demo", "tap", "--", folder, delay, command, ...args],
  });
  return { ...program, ...tap(program), others: program.others?.map(tap) };
}
