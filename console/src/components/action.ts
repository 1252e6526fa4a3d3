import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useToasts } from "./toasts";

interface Told<Input, Output> {
  /** What to say when it is done. */
  done?: string | ((output: Output, input: Input) => string);
  /** Which queries no longer hold; all of them unless told. */
  stale?: readonly unknown[];
  then?: (output: Output, input: Input) => void;
  /** The form shows the error itself. */
  quiet?: boolean;
  failed?: (error: unknown) => void;
}

/** Something that changes the deployment: says when it is done, says what went wrong, and has lists read again. */
export function useAction<Input, Output>(
  act: (input: Input) => Promise<Output>,
  told: Told<Input, Output> = {},
) {
  const queries = useQueryClient();
  const { say, fail } = useToasts();
  return useMutation({
    mutationFn: act,
    onSuccess: (output, input) => {
      void queries.invalidateQueries(told.stale ? { queryKey: told.stale } : {});
      if (told.done) say(typeof told.done === "string" ? told.done : told.done(output, input));
      told.then?.(output, input);
    },
    onError: (error) => {
      if (!told.quiet) fail(error);
      told.failed?.(error);
    },
  });
}
