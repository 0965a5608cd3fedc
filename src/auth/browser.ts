import type { Env } from "../base/paths.ts";

export interface BrowserEnvironment {
  readonly env: Env;
  /** The value of `process.platform`. */
  readonly platform: string;
}

/**
 * Maximum wait for the end of the command, in ms. A command that still runs after this time is assumed to be the
 * browser itself.
 */
const WATCH_TIME = 3000;

/**
 * Opens a URL in the user's browser: with the commands in `BROWSER` (`%s` stands for the URL), else with the commands
 * of the platform. No shell is used.
 * @returns whether a command seems to have succeeded; false without a display. Never rejects
 */
export async function openBrowser(
  url: string,
  { env, platform }: BrowserEnvironment,
): Promise<boolean> {
  for (const [command, ...args] of commandsFor(url, env, platform)) {
    if (command !== undefined && (await runCommand(command, args, env))) return true;
  }
  return false;
}

function commandsFor(url: string, env: Env, platform: string): readonly (readonly string[])[] {
  const configured = (env["BROWSER"] ?? "").split(":").filter((entry) => entry.trim() !== "");
  if (configured.length > 0) return configured.map((command) => insertUrl(command.trim(), url));
  if (platform === "darwin") return [["open", url]];
  // `start` is not used: cmd.exe would split the URL at `&`.
  if (platform === "win32") return [["rundll32", "url.dll,FileProtocolHandler", url]];
  const hasScreen = Boolean(env["DISPLAY"] || env["WAYLAND_DISPLAY"] || env["WSL_DISTRO_NAME"]);
  return hasScreen
    ? [
        ["xdg-open", url],
        ["wslview", url],
      ]
    : [];
}

function insertUrl(command: string, url: string): readonly string[] {
  const words = command.split(/\s+/);
  const filled = words.map((word) => word.replaceAll("%s", url));
  return command.includes("%s") ? filled : [...words, url];
}

async function runCommand(command: string, args: readonly string[], env: Env): Promise<boolean> {
  const { spawn } = await import("node:child_process");
  return new Promise((resolve) => {
    try {
      // The browser outlives the hub and must not write to its output. It gets none of toolmux's own variables, because
      // they may hold secrets.
      const childEnv = Object.entries(env).filter(([name]) => !name.startsWith("TOOLMUX_"));
      const child = spawn(command, args, {
        env: Object.fromEntries(childEnv),
        stdio: "ignore",
        detached: true,
      });
      const timer = setTimeout(() => resolve(true), WATCH_TIME);
      const finish = (isOk: boolean): void => {
        clearTimeout(timer);
        resolve(isOk);
      };
      child.once("error", () => finish(false));
      child.once("exit", (code) => finish(code === 0));
      child.unref();
    } catch {
      // Some runtimes throw if the command cannot be started; others emit `error`.
      resolve(false);
    }
  });
}
