import { untilAborted } from "../base/grace.ts";
import type { AuthorizationProgress } from "../transport/http/credentials.ts";
import type { AuthorizationOptions } from "./authorizer.ts";

interface Running {
  readonly done: Promise<void>;
  readonly abort: AbortController;
  readonly there: Set<AuthorizationOptions>;
  progress: AuthorizationProgress | undefined;
}

type Work = (
  signal: AbortSignal,
  progressed: (progress: AuthorizationProgress) => void,
) => Promise<void>;

/** Something that is done once for all who want it at a time, and given up when nobody wants it any more. */
export class SharedOperation {
  #running: Running | undefined;

  /** Joins what runs, or begins. @throws what the work throws; the reason of one's own signal */
  async join(own: AuthorizationOptions, work: Work): Promise<void> {
    own.signal.throwIfAborted();
    const running = (this.#running ??= this.#begin(work));
    running.there.add(own);
    if (running.progress !== undefined) own.onProgress(running.progress);
    try {
      await untilAborted(running.done, own.signal);
    } finally {
      running.there.delete(own);
      if (running.there.size === 0) this.#end(running, own.signal.reason);
    }
  }

  #begin(work: Work): Running {
    const abort = new AbortController();
    const there = new Set<AuthorizationOptions>();
    // Who begins is there before anything is told.
    const done = Promise.resolve().then(() =>
      work(abort.signal, (progress) => {
        running.progress = progress;
        for (const each of there) each.onProgress(progress);
      }),
    );
    const running: Running = { done, abort, there, progress: undefined };
    done.catch(() => {}).finally(() => this.#end(running, undefined));
    return running;
  }

  /** Whoever comes from now on begins anew. */
  #end(running: Running, reason: unknown): void {
    if (this.#running === running) this.#running = undefined;
    running.abort.abort(reason);
  }
}
