import type { Env } from "../base/paths.ts";

/** Where a browser is to be opened. */
export interface BrowserEnvironment {
  readonly env: Env;
  /** As in `process.platform`. */
  readonly platform: string;
}

/** How long a program that opens a browser is watched for, in ms: one that lasts as long is the browser itself. */
const WATCH = 3000;

/**
 * Opens a page in the person's browser: with the programs of `BROWSER` (each of which may say `%s` where the page goes), or
 * as the system does. No shell is asked.
 * @returns whether that seems to have worked; false where there is no screen. Never rejects
 */
export async function openBrowser(
  url: string,
  { env, platform }: BrowserEnvironment,
): Promise<boolean> {
  for (const [command, ...args] of commandsFor(url, env, platform)) {
    if (command !== undefined && (await run(command, args, env))) return true;
  }
  return false;
}

function commandsFor(url: string, env: Env, platform: string): readonly (readonly string[])[] {
  const wanted = (env["BROWSER"] ?? "").split(":").filter((it) => it.trim() !== "");
  if (wanted.length > 0) return wanted.map((command) => fillIn(command.trim(), url));
  if (platform === "darwin") return [["open", url]];
  // Its start command reads & as the end of a command.
  if (platform === "win32") return [["rundll32", "url.dll,FileProtocolHandler", url]];
  const hasScreen = Boolean(env["DISPLAY"] || env["WAYLAND_DISPLAY"] || env["WSL_DISTRO_NAME"]);
  return hasScreen
    ? [
        ["xdg-open", url],
        ["wslview", url],
      ]
    : [];
}

function fillIn(command: string, url: string): readonly string[] {
  const words = command.split(/\s+/);
  const filled = words.map((word) => word.replaceAll("%s", url));
  return command.includes("%s") ? filled : [...words, url];
}

async function run(command: string, args: readonly string[], env: Env): Promise<boolean> {
  const { spawn } = await import("node:child_process");
  return new Promise((resolve) => {
    try {
      // It outlives the hub, and has no word on the hub's own output. Secrets are none of its business, nor is whose it is.
      const own = Object.entries(env).filter(([name]) => !name.startsWith("TOOLMUX_"));
      const child = spawn(command, args, {
        env: Object.fromEntries(own),
        stdio: "ignore",
        detached: true,
      });
      const timer = setTimeout(() => resolve(true), WATCH);
      const end = (worked: boolean): void => {
        clearTimeout(timer);
        resolve(worked);
      };
      child.once("error", () => end(false));
      child.once("exit", (code) => end(code === 0));
      child.unref();
    } catch {
      // Some runtimes throw where others tell.
      resolve(false);
    }
  });
}
