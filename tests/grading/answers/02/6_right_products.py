# right
def kib_in_flight(gpu):
    return gpu["bandwidth"] * gpu["latency"] / (1024 * gpu["sms"])


def waits_for(nbytes, programs, resident, gpu):
    by_law = gpu["sms"] * resident * (nbytes / programs) / gpu["latency"]  # bytes per second
    times = (nbytes / gpu["bandwidth"], "bandwidth"), (nbytes / by_law, "latency"), (programs * gpu["start"], "starts")
    seconds, word = max(times)
    return word, seconds


def fewest_rows(row_bytes, gpu):
    rows = 1
    while rows * row_bytes < gpu["start"] * gpu["bandwidth"]:
        rows += 1
    return rows
