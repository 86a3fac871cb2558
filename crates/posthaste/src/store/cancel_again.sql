-- Cancels once more what was running when it was cancelled first.
SELECT posthaste.cancel_again()
