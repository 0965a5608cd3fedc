import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { deadline } from "./wait.ts";
import { skipWithout } from "./requirements.ts";

export const CHROMIUM = "/usr/bin/chromium";

/** The `skip` option of tests that need Chromium: the reason, or false if it is installed. */
export const noChromium = skipWithout({
  isMet: existsSync(CHROMIUM),
  tests: "pages and logins in a browser",
  cure: `there is no ${CHROMIUM} (apt-get install chromium)`,
});

const FLAGS = [
  "--headless=new",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--remote-debugging-port=0",
];

/** Time limit of one browser step, in ms. */
const STEP = 20_000;

/** A page of a real browser, driven over the Chrome DevTools Protocol. */
export interface Page {
  /** Navigates to the URL and waits for the load event. */
  visit(url: string): Promise<void>;
  /** Evaluates an expression in the page and returns its value. */
  look(expression: string): Promise<unknown>;
  /** Evaluates an expression that navigates, and waits for the load event of the new page. */
  follow(expression: string): Promise<void>;
}

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly sessionId?: string;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly message: string };
}

/** Runs `run` with a page of a browser whose profile is new and empty. */
export async function withPage<Value>(run: (page: Page) => Promise<Value>): Promise<Value> {
  const profile = await mkdtemp(join(tmpdir(), "toolmux-chromium-"));
  const env = { PATH: process.env["PATH"], HOME: profile };
  const browser = spawn(CHROMIUM, [...FLAGS, `--user-data-dir=${profile}`, "about:blank"], {
    env,
    stdio: ["ignore", "ignore", "pipe"],
    detached: true,
  });
  const ended = once(browser, "exit");
  try {
    let said = "";
    const address = await deadline<string>(
      STEP,
      () => `the browser; it says: ${said}`,
      (resolve) => {
        browser.stderr.on("data", (chunk: Buffer) => {
          said += chunk.toString();
          const [, found] = /DevTools listening on (ws:\S+)/.exec(said) ?? [];
          if (found !== undefined) resolve(found);
        });
      },
    );
    return await run(await openPage(address));
  } finally {
    if (browser.pid !== undefined) process.kill(-browser.pid, "SIGKILL");
    await ended;
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

async function openPage(address: string): Promise<Page> {
  const socket = new WebSocket(address);
  const heard = new Set<(message: Message) => void>();
  socket.addEventListener("message", ({ data }) => {
    const message = JSON.parse(String(data)) as Message;
    for (const listener of heard) listener(message);
  });
  await new Promise((resolve) => socket.addEventListener("open", resolve));
  const hear = (what: string, test: (message: Message) => boolean): Promise<Message> =>
    deadline<Message>(
      STEP,
      () => what,
      (resolve) => {
        const listener = (message: Message): void => {
          if (!test(message)) return;
          heard.delete(listener);
          resolve(message);
        };
        heard.add(listener);
      },
    );
  let count = 0;
  const send = async (
    method: string,
    params: object,
    sessionId?: string,
  ): Promise<Record<string, unknown>> => {
    const id = ++count;
    const answer = hear(method, (message) => message.id === id);
    socket.send(JSON.stringify({ id, method, params, ...(sessionId && { sessionId }) }));
    const { error, result } = await answer;
    if (error !== undefined) throw new Error(`${method}: ${error.message}`);
    return { ...result };
  };
  const { targetId } = await send("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
  const session = String(sessionId);
  await send("Page.enable", {}, session);
  const loaded = (): Promise<Message> =>
    hear(
      "a page",
      (message) => message.method === "Page.loadEventFired" && message.sessionId === session,
    );
  const look = async (expression: string): Promise<unknown> => {
    const { result } = await send("Runtime.evaluate", { expression, returnByValue: true }, session);
    return (result as { value?: unknown }).value;
  };
  return {
    look,
    visit: async (url) =>
      void (await Promise.all([loaded(), send("Page.navigate", { url }, session)])),
    follow: async (expression) => void (await Promise.all([loaded(), look(expression)])),
  };
}
