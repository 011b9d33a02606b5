# right
import math


def kib_in_flight(gpu):
    return gpu["bandwidth"] / gpu["sms"] * gpu["latency"] / 2**10


def waits_for(nbytes, programs, resident, gpu):
    rounds = programs / (gpu["sms"] * resident)  # of resident programs, each a latency long
    times = {
        "bandwidth": nbytes / gpu["bandwidth"],
        "latency": rounds * gpu["latency"],
        "starts": programs * gpu["start"],
    }
    return max(times.items(), key=lambda item: item[1])


def fewest_rows(row_bytes, gpu):
    return math.ceil(gpu["start"] * gpu["bandwidth"] / row_bytes)
