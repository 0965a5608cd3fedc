/** A request that failed. `status` 0: there was no response. */
export interface Failure {
  readonly kind: "failed";
  readonly status: number;
  readonly code: string;
  readonly message: string;
}

/** The answer to a request. `date`: the time at the hub, in ms. */
export type Answer<T> =
  { readonly kind: "ok"; readonly value: T; readonly date: number | undefined } | Failure;

export interface RequestOptions {
  readonly method?: string;
  /** A value that is sent as JSON; `raw`: JSON text that is sent as it is. */
  readonly body?: unknown;
  readonly raw?: string | undefined;
  readonly signal?: AbortSignal;
}

const BEARER_KEY = "toolmux.bearer";
/** How long the event stream may be silent, in ms: the hub sends something every 15 s. */
const SILENCE_LIMIT = 40_000;

/** Sends a request to `path`, which is relative to the page. Never rejects. */
export async function request<T>(path: string, options: RequestOptions = {}): Promise<Answer<T>> {
  const {
    method = "GET",
    body,
    raw = body === undefined ? undefined : JSON.stringify(body),
    signal,
  } = options;
  try {
    const response = await fetch(path, {
      method,
      headers: headersFor(raw !== undefined),
      cache: "no-store",
      ...(raw !== undefined && { body: raw }),
      ...(signal !== undefined && { signal }),
    });
    if (!response.ok) return await failureOf(response);
    const text = await response.text();
    const date = Date.parse(response.headers.get("Date") ?? "");
    return {
      kind: "ok",
      value: (text === "" ? undefined : JSON.parse(text)) as T,
      date: Number.isNaN(date) ? undefined : date,
    };
  } catch {
    return { kind: "failed", status: 0, code: "unreachable", message: "toolmux does not answer." };
  }
}

function headersFor(hasBody: boolean): Record<string, string> {
  const bearer = localStorage.getItem(BEARER_KEY);
  return {
    Accept: "application/json",
    ...(bearer !== null && { Authorization: `Bearer ${bearer}` }),
    ...(hasBody && { "Content-Type": "application/json" }),
  };
}

async function failureOf(response: Response): Promise<Failure> {
  const { status } = response;
  const document = (await response.json().catch(() => undefined)) as
    { readonly error?: { readonly code?: string; readonly message?: string } } | undefined;
  const { code = "internal", message = `The answer was ${status}.` } = document?.error ?? {};
  return { kind: "failed", status, code, message };
}

/**
 * Exchanges the one-time token in the page's URL, if there is one, for a bearer token. Removes the one-time token from
 * the URL.
 * @returns why that failed; undefined if it succeeded
 */
export async function openSession(): Promise<string | undefined> {
  const [, token] = /^#(?:token=)?([\w-]{40,})$/.exec(location.hash) ?? [];
  if (token === undefined) return undefined;
  history.replaceState(null, "", location.pathname);
  const answer = await request<{ readonly bearer: string }>("./api/session", {
    method: "POST",
    body: { token },
  });
  if (answer.kind === "failed") return answer.message;
  localStorage.setItem(BEARER_KEY, answer.value.bearer);
  return undefined;
}

/** Calls `listener` when another tab has opened a session. */
export function onSessionOfOtherTab(listener: () => void): void {
  window.addEventListener("storage", ({ key, newValue }) => {
    if (key === BEARER_KEY && newValue !== null) listener();
  });
}

/**
 * Reads a stream of server-sent events until it ends, breaks, is silent for too long or is aborted.
 * @param onEvent may return a promise: reading goes on when it has settled
 * @returns the failed answer if there was no stream
 */
export async function readEvents(
  path: string,
  signal: AbortSignal,
  onOpen: () => void,
  onEvent: (event: object) => void | Promise<void>,
): Promise<Failure | undefined> {
  const silence = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const listen = (): void => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(), SILENCE_LIMIT);
  };
  try {
    listen();
    const response = await fetch(path, {
      headers: { ...headersFor(false), Accept: "text/event-stream" },
      cache: "no-store",
      signal: AbortSignal.any([signal, silence.signal]),
    });
    if (!response.ok || response.body === null) return await failureOf(response);
    onOpen();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return undefined;
      listen();
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const event = parseEvent(block);
        if (event !== undefined) await onEvent(event);
      }
    }
  } catch {
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}

/** One block of an event stream; undefined if it is a comment. */
function parseEvent(block: string): object | undefined {
  const lines = block.split("\n");
  const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5));
  if (data.length === 0) return undefined;
  const event = JSON.parse(data.join("\n")) as object;
  const name = lines
    .find((line) => line.startsWith("event:"))
    ?.slice(6)
    .trim();
  return name === "gap" ? { ...event, kind: "gap" } : event;
}
