import process from "node:process";
import { runtimeName } from "../../base/runtime.ts";
import { VERSION } from "../../base/version.ts";
import type { Terminal } from "../../terminal/terminal.ts";

/** `toolmux version`: prints version, runtime and platform in one line. */
export function printVersion(terminal: Terminal): Promise<number> {
  terminal.print(`toolmux ${VERSION} (${runtimeName}, ${process.platform} ${process.arch})`);
  return Promise.resolve(0);
}
