import type { Env } from "../base/paths.ts";

/** What decides how a browser is opened. */
export interface BrowserEnvironment {
  readonly env: Env;
  /** As `process.platform`. */
  readonly platform: string;
}

/** How long the command is watched, in ms: one that still runs then is taken for the browser itself. */
const WATCH = 3000;

/**
 * Opens a URL in the user's browser: with the commands in `BROWSER` (`%s` stands for the URL), else with the
 * platform's. No shell is used.
 * @returns whether a command seems to have succeeded; false without a display. Never rejects
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
  // The start command of Windows would split the URL at &.
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
      // The browser outlives the hub and must not write to its output. It gets neither toolmux's secrets nor its owner
      // tag.
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
      // Some runtimes throw where others emit `error`.
      resolve(false);
    }
  });
}
