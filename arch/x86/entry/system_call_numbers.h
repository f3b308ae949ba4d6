// SPDX-License-Identifier: MIT
// Numbers of the system calls that the agent makes, or makes in the application's stead (entry/syscalls/syscall_64.tbl).
#pragma once

namespace uprobe::agent {

inline constexpr long kSysRead = 0;
inline constexpr long kSysWrite = 1;
inline constexpr long kSysOpen = 2;
inline constexpr long kSysClose = 3;
inline constexpr long kSysPoll = 7;
inline constexpr long kSysLseek = 8;
inline constexpr long kSysMmap = 9;
inline constexpr long kSysMprotect = 10;
inline constexpr long kSysMunmap = 11;
inline constexpr long kSysRtSigaction = 13;
inline constexpr long kSysRtSigprocmask = 14;
inline constexpr long kSysRtSigreturn = 15;
inline constexpr long kSysSchedYield = 24;
inline constexpr long kSysDup2 = 33;
inline constexpr long kSysNanosleep = 35;
inline constexpr long kSysGetpid = 39;
inline constexpr long kSysClone = 56;
inline constexpr long kSysExecve = 59;
inline constexpr long kSysWait4 = 61;
inline constexpr long kSysFcntl = 72;
inline constexpr long kSysFtruncate = 77;
inline constexpr long kSysReadlink = 89;
inline constexpr long kSysPtrace = 101;
inline constexpr long kSysSetuid = 105;
inline constexpr long kSysSetgid = 106;
inline constexpr long kSysGetppid = 110;
inline constexpr long kSysSetsid = 112;
inline constexpr long kSysSetreuid = 113;
inline constexpr long kSysSetregid = 114;
inline constexpr long kSysSetgroups = 116;
inline constexpr long kSysSetresuid = 117;
inline constexpr long kSysSetresgid = 119;
inline constexpr long kSysCapset = 126;
inline constexpr long kSysRtSigpending = 127;
inline constexpr long kSysRtSigtimedwait = 128;
inline constexpr long kSysRtSigqueueinfo = 129;
inline constexpr long kSysRtSigsuspend = 130;
inline constexpr long kSysSigaltstack = 131;
inline constexpr long kSysPrctl = 157;
inline constexpr long kSysGettid = 186;
inline constexpr long kSysFutex = 202;
inline constexpr long kSysExitGroup = 231;
inline constexpr long kSysTgkill = 234;
inline constexpr long kSysOpenat = 257;
inline constexpr long kSysPselect6 = 270;
inline constexpr long kSysPpoll = 271;
inline constexpr long kSysUnshare = 272;
inline constexpr long kSysEpollPwait = 281;
inline constexpr long kSysSignalfd = 282;
inline constexpr long kSysSignalfd4 = 289;
inline constexpr long kSysDup3 = 292;
inline constexpr long kSysPipe2 = 293;
inline constexpr long kSysRtTgsigqueueinfo = 297;
inline constexpr long kSysPrlimit = 302;
inline constexpr long kSysSetns = 308;
inline constexpr long kSysSeccomp = 317;
inline constexpr long kSysMemfdCreate = 319;
inline constexpr long kSysExecveat = 322;
inline constexpr long kSysMembarrier = 324;
inline constexpr long kSysPkeyMprotect = 329;
inline constexpr long kSysRseq = 334;
inline constexpr long kSysClone3 = 435;
inline constexpr long kSysCloseRange = 436;
inline constexpr long kSysEpollPwait2 = 441;

}  // namespace uprobe::agent
