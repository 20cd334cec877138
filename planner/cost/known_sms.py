"""Streaming multiprocessors of NVIDIA cards, by the names of ``known_nvidia``, and the threads each keeps resident.

Sources: NVIDIA architecture white papers and data sheets (CUDA cores over 128; over 64 on Turing and A100); threads
per multiprocessor from the compute capability (CUDA programming guide, technical specifications): 1,024 on Turing,
2,048 on data centre parts since Pascal, 1,536 on the others.
"""

from __future__ import annotations

from typing import Final

_TURING: Final = {
    "rtx 2080 ti": 68, "rtx 2080 super": 48, "rtx 2080": 46, "rtx 2070 super": 40, "rtx 2070": 36,
    "rtx 2060 super": 34, "rtx 2060": 34, "titan rtx": 72, "gtx 1660 ti": 24, "gtx 1660 super": 22, "gtx 1660": 22,
    "gtx 1650 super": 20, "quadro rtx 8000": 72, "quadro rtx 6000": 72, "quadro rtx 5000": 48, "quadro rtx 4000": 36,
    "t4": 40,
}  # fmt: skip

_CONSUMER: Final = {
    "rtx 5090": 170, "rtx 5090 d": 170, "rtx 5080": 84, "rtx 5070 ti": 70, "rtx 5070": 48, "rtx 5060 ti": 36,
    "rtx 5060": 30, "rtx 5050": 20, "rtx 4090": 128, "rtx 4090 d": 114, "rtx 4080 super": 80, "rtx 4080": 76,
    "rtx 4070 ti super": 66, "rtx 4070 ti": 60, "rtx 4070 super": 56, "rtx 4070": 46, "rtx 4060 ti": 34,
    "rtx 4060": 24, "rtx 3090 ti": 84, "rtx 3090": 82, "rtx 3080 ti": 80, "rtx 3080": 70, "rtx 3070 ti": 48,
    "rtx 3070": 46, "rtx 3060 ti": 38, "rtx 3060": 28, "rtx 3050": 20, "rtx 5090 laptop": 82, "rtx 5080 laptop": 60,
    "rtx 5070 ti laptop": 46, "rtx 5070 laptop": 36, "rtx 5060 laptop": 26, "rtx 4090 laptop": 76,
    "rtx 4080 laptop": 58, "rtx 4070 laptop": 36, "rtx 4060 laptop": 24, "rtx 4050 laptop": 20,
    "rtx 3080 ti laptop": 58, "rtx 3080 laptop": 48, "rtx 3070 ti laptop": 46, "rtx 3070 laptop": 40,
    "rtx 3060 laptop": 30, "rtx pro 6000 blackwell workstation": 188, "rtx pro 6000 blackwell max q workstation": 188,
    "rtx pro 6000 blackwell server": 188, "rtx pro 5000 blackwell": 110, "rtx pro 4500 blackwell": 82,
    "rtx pro 4000 blackwell": 70, "rtx 6000 ada": 142, "rtx 5000 ada": 100, "rtx 4500 ada": 60, "rtx 4000 ada": 48,
    "rtx 4000 sff ada": 48, "rtx 2000 ada": 22, "rtx a6000": 84, "rtx a5500": 80, "rtx a5000": 64, "rtx a4500": 56,
    "rtx a4000": 48, "rtx a2000": 26, "a40": 84, "a10": 72, "a10g": 80, "a2": 10, "l40s": 142, "l40": 142, "l20": 92,
    "l4": 58,
}  # fmt: skip

_DATA_CENTRE: Final = {
    "b200": 148, "h200": 132, "h200 nvl": 132, "h100 hbm3": 132, "h100 nvl": 132, "h100 pcie": 114, "h800": 132,
    "h20": 78, "a100 sxm4": 108, "a100 pcie": 108, "a800 sxm4": 108, "a30": 56,
}  # fmt: skip

RESIDENT_THREADS: Final = {
    name: count * threads
    for sms, threads in ((_TURING, 1024), (_CONSUMER, 1536), (_DATA_CENTRE, 2048))
    for name, count in sms.items()
}
"""Threads that a whole card keeps resident, by name."""
