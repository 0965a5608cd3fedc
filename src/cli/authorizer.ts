import { join } from "node:path";
import type { BrowserEnvironment } from "../auth/browser.ts";
import type { OAuthAuthorizer } from "../auth/oauth-authorizer.ts";
import type { CommandContext } from "./command.ts";

/** Shows a person a page to log in at. Never rejects. */
export type ShowLoginPage = (url: string, server: string) => Promise<void>;

/** What gets this user's hubs into servers; nothing of it is loaded before somebody calls this. */
export async function openUserAuthorizer(
  world: Pick<CommandContext, "env" | "platform">,
  openUrl: ShowLoginPage,
): Promise<OAuthAuthorizer> {
  const { env } = world;
  const [
    { openOAuthAuthorizer: openAuthorizer },
    { openSecrets },
    { withFileLock: withLock },
    { makeFetch: dialer },
  ] = await Promise.all([
    import("../auth/oauth-authorizer.ts"),
    import("../secrets/secrets.ts"),
    import("../process/file-lock.ts"),
    import("../transport/http-client/fetch.ts"),
  ]);
  const { file: store, folder } = openSecrets(world);
  return openAuthorizer({
    store,
    lock: (name, signal, work, limit) =>
      withLock(join(folder, "locks", name.replaceAll("/", "-")), signal, work, { limit }),
    dial: ({ ca }) => dialer({ ca, env }),
    openUrl,
  });
}

/** Opens the browser, or says where to go if there is none. */
export function showLoginPage(
  desktop: BrowserEnvironment,
  tell: (level: "info" | "warn", text: string, server: string) => void,
): ShowLoginPage {
  return async (url, server) => {
    const { openBrowser } = await import("../auth/browser.ts");
    if (await openBrowser(url, desktop)) {
      tell("info", "a browser was opened to log in", server);
    } else {
      tell("warn", `no browser could be opened; log in at ${url}`, server);
    }
  };
}
