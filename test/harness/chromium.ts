import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { withDeadline } from "./wait.ts";
import { skipWithout } from "./requirements.ts";

export const CHROMIUM = "/usr/bin/chromium";

/** The `skip` option of tests that need Chromium: the reason, or false if it is installed. */
export const skipWithoutChromium = skipWithout({
  isMet: existsSync(CHROMIUM),
  tests: "pages and logins in a browser",
  remedy: `there is no ${CHROMIUM} (apt-get install chromium)`,
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
const STEP_LIMIT = 20_000;

/** A page of a real browser, driven over the Chrome DevTools Protocol. */
export interface BrowserPage {
  /** Navigates to the URL and waits for the load event. */
  navigate(url: string): Promise<void>;
  /** Evaluates an expression in the page and returns its value, or what its promise settles with. */
  evaluate(expression: string): Promise<unknown>;
  /** Waits until the expression is truthy. @returns its value */
  waitFor(expression: string): Promise<unknown>;
  /** Sends a command of the Chrome DevTools Protocol. */
  send(method: string, params?: object): Promise<Readonly<Record<string, unknown>>>;
  /** Evaluates an expression that navigates, and waits for the load event of the new page. */
  evaluateAndNavigate(expression: string): Promise<void>;
}

interface DevToolsMessage {
  readonly id?: number;
  readonly method?: string;
  readonly sessionId?: string;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly message: string };
}

/** Runs `run` with a page of a new browser, or of `browser`. @param run `openTab` opens another page of the same profile */
export function withBrowserPage<Value>(
  run: (page: BrowserPage, openTab: () => Promise<BrowserPage>) => Promise<Value>,
): Promise<Value> {
  return withBrowser((browser) => withPageOf(browser, run));
}

/** A running browser: the URL of its DevTools. */
export interface Browser {
  readonly address: string;
}

/** The same with a page of a browser that runs already. The page has a profile that is new and empty. */
export async function withPageOf<Value>(
  { address }: Browser,
  run: (page: BrowserPage, openTab: () => Promise<BrowserPage>) => Promise<Value>,
): Promise<Value> {
  const { send, socket } = await connect(address);
  const { browserContextId } = await send("Target.createBrowserContext", {});
  const context = String(browserContextId);
  try {
    return await run(await openPage(address, context), () => openPage(address, context));
  } finally {
    await send("Target.disposeBrowserContext", { browserContextId });
    socket.close();
  }
}

/** Runs `run` with a browser that nothing else uses. */
export async function withBrowser<Value>(
  run: (browser: Browser) => Promise<Value>,
): Promise<Value> {
  const profile = await mkdtemp(join(tmpdir(), "toolmux-chromium-"));
  const env = { PATH: process.env["PATH"], HOME: profile };
  const browser = spawn(CHROMIUM, [...FLAGS, `--user-data-dir=${profile}`, "about:blank"], {
    env,
    stdio: ["ignore", "ignore", "pipe"],
    detached: true,
  });
  const ended = once(browser, "exit");
  try {
    let output = "";
    const address = await withDeadline<string>(
      STEP_LIMIT,
      () => `the browser; it says: ${output}`,
      (resolve) => {
        browser.stderr.on("data", (chunk: Buffer) => {
          output += chunk.toString();
          const [, found] = /DevTools listening on (ws:\S+)/.exec(output) ?? [];
          if (found !== undefined) resolve(found);
        });
      },
    );
    return await run({ address });
  } finally {
    if (browser.pid !== undefined) process.kill(-browser.pid, "SIGKILL");
    await ended;
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** A connection to the DevTools of a browser. */
interface DevTools {
  readonly socket: WebSocket;
  /** Sends a command. @throws Error if the browser answers with an error */
  send(method: string, params: object, sessionId?: string): Promise<Record<string, unknown>>;
  waitForMessage(
    what: string,
    test: (message: DevToolsMessage) => boolean,
  ): Promise<DevToolsMessage>;
}

async function connect(address: string): Promise<DevTools> {
  const socket = new WebSocket(address);
  const listeners = new Set<(message: DevToolsMessage) => void>();
  socket.addEventListener("message", ({ data }) => {
    const message = JSON.parse(String(data)) as DevToolsMessage;
    for (const listener of listeners) listener(message);
  });
  await new Promise((resolve) => socket.addEventListener("open", resolve));
  const waitForMessage: DevTools["waitForMessage"] = (what, test) =>
    withDeadline<DevToolsMessage>(
      STEP_LIMIT,
      () => what,
      (resolve) => {
        const listener = (message: DevToolsMessage): void => {
          if (!test(message)) return;
          listeners.delete(listener);
          resolve(message);
        };
        listeners.add(listener);
      },
    );
  let lastId = 0;
  const send: DevTools["send"] = async (method, params, sessionId) => {
    const id = ++lastId;
    const response = waitForMessage(method, (message) => message.id === id);
    socket.send(JSON.stringify({ id, method, params, ...(sessionId && { sessionId }) }));
    const { error, result } = await response;
    if (error !== undefined) throw new Error(`${method}: ${error.message}`);
    return { ...result };
  };
  return { socket, send, waitForMessage };
}

/** @param context the id of the browser context whose profile the page has */
async function openPage(address: string, context: string): Promise<BrowserPage> {
  const { send, waitForMessage } = await connect(address);
  const target = { url: "about:blank", browserContextId: context };
  const { targetId } = await send("Target.createTarget", target);
  const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
  const session = String(sessionId);
  await send("Page.enable", {}, session);
  const waitForLoad = (): Promise<DevToolsMessage> =>
    waitForMessage(
      "a page",
      (message) => message.method === "Page.loadEventFired" && message.sessionId === session,
    );
  const evaluate = async (expression: string): Promise<unknown> => {
    const params = { expression, returnByValue: true, awaitPromise: true };
    const { result, exceptionDetails } = await send("Runtime.evaluate", params, session);
    if (exceptionDetails !== undefined) throw new Error(JSON.stringify(exceptionDetails));
    return (result as { value?: unknown }).value;
  };
  const waitFor = (expression: string): Promise<unknown> =>
    withDeadline(
      STEP_LIMIT,
      () => expression,
      (resolve, reject) => {
        const code = `new Promise((resolve) => {
        const look = () => {
          const value = (() => { try { return ${expression}; } catch { return undefined; } })();
          if (value) resolve(value); else setTimeout(look, 10);
        };
        look();
      })`;
        evaluate(code).then(resolve, reject);
      },
    );
  return {
    evaluate,
    waitFor,
    send: (method, params = {}) => send(method, params, session),
    navigate: async (url) =>
      void (await Promise.all([waitForLoad(), send("Page.navigate", { url }, session)])),
    evaluateAndNavigate: async (expression) =>
      void (await Promise.all([waitForLoad(), evaluate(expression)])),
  };
}
