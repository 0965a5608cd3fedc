import type { Invocation, World } from "../command.ts";
export function doctor(_i: Invocation, _w: World): Promise<number> {
  return Promise.resolve(0);
}
