import type { Hub } from "../hub/hub.ts";
import { STOP_LIMIT, settlesWithin } from "../base/grace.ts";

/** For what can wait until the hub has started its servers, in ms. */
const SETTLING = 100;

/**
 * Ends, beside the work of a hub, what other hubs have left behind because they were killed.
 * @param tell is given the number of processes, if there were any
 * @returns what closes the hub and waits for both, STOP_LIMIT at most
 */
export function sweepOrphansInBackground(
  hub: Hub,
  tell: (count: number) => void,
): () => Promise<void> {
  let sweeping: Promise<void> | undefined;
  const begin = (): Promise<void> => (sweeping ??= sweep(tell));
  const timer = setTimeout(() => void begin(), SETTLING);
  timer.unref();
  return async () => {
    clearTimeout(timer);
    // What has not ended by then ends with this process.
    await settlesWithin(STOP_LIMIT, Promise.all([hub.close(), begin()]));
  };
}

async function sweep(tell: (count: number) => void): Promise<void> {
  // Whatever deals with processes is loaded after the first answer to the client.
  const { sweepOrphans } = await import("../process/orphans.ts");
  const count = await sweepOrphans();
  if (count > 0) tell(count);
}
