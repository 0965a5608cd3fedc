import process from "node:process";
import {
  type ByteInput,
  type ByteOutput,
  inputOfNodeStream,
  inputOfWebStream,
  outputOfBunSink,
  outputOfNodeStream,
} from "./byte-streams.ts";
import {
  duplicateDescriptor,
  enlargeBuffer,
  statsOfDescriptor,
  stdinOnBun,
  stdoutOnBun,
} from "./runtime.ts";
import { adoptSocket, type AdoptedSocket } from "./unix-socket.ts";

/** The process's own stdin. */
export function ownStdin(): ByteInput {
  const socket = socketAt(0);
  if (socket !== undefined) return socket.input;
  return stdinOnBun ? inputOfWebStream(stdinOnBun()) : inputOfNodeStream(process.stdin);
}

/**
 * The process's own stdout.
 * @param onBroken called once with the error of the first write that fails
 */
export function ownStdout(onBroken: (error: unknown) => void): ByteOutput {
  const output = openStdout(onBroken);
  let isEnlarged = false;
  return {
    write(bytes) {
      if (!isEnlarged && bytes.length >= LARGE_WRITE) {
        isEnlarged = true;
        enlargeBuffer(1);
      }
      return output.write(bytes);
    },
    end: () => output.end(),
    retainsNoMemory: output.retainsNoMemory,
  };
}

function openStdout(onBroken: (error: unknown) => void): ByteOutput {
  const socket = socketAt(1);
  if (socket !== undefined) return outputOfSocket(socket, onBroken);
  if (stdoutOnBun === undefined) return outputOfNodeStream(process.stdout, onBroken);
  return outputOfBunSink(stdoutOnBun(), onBroken);
}

/** A write of at least this size, in bytes, causes the buffer to be enlarged. */
const LARGE_WRITE = 32 * 1024;

/**
 * The socket that a descriptor stands for, as with clients of Node. A message then takes one system call, and not five:
 * `docs/decisions/hot-path.md`. The connection has a descriptor of its own, so that 0 and 1 stay open: other files must
 * not get their numbers.
 * @returns undefined if it is no socket, or the runtime cannot use it
 */
function socketAt(fd: 0 | 1): AdoptedSocket | undefined {
  if (stdinOnBun === undefined || statsOfDescriptor(fd)?.isSocket() !== true) return undefined;
  const own = duplicateDescriptor(fd);
  return own === undefined ? undefined : adoptSocket(own);
}

function outputOfSocket(socket: AdoptedSocket, onBroken: (error: unknown) => void): ByteOutput {
  const { input, output } = socket;
  // Nothing is read there: stdin may be the same socket.
  input.pause();
  let isBroken = false;
  const check = (): void => {
    if (isBroken || !socket.isClosed) return;
    isBroken = true;
    onBroken(Object.assign(new Error("The reader of stdout has closed it."), { code: "EPIPE" }));
  };
  return {
    write(bytes) {
      const written = output.write(bytes);
      if (written !== undefined) return written.then(check);
      check();
      return undefined;
    },
    end: () => output.end(),
    retainsNoMemory: output.retainsNoMemory,
  };
}
