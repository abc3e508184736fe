// Sends over connections of the loopback that the congestion control in the first argument serves, without end.

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **arguments)
{
	const char *name = arguments[count - 1];
	for (;;) {
		struct sockaddr_in end = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		socklen_t len = sizeof(end);
		char bytes[1000] = { 0 };
		int listener = socket(AF_INET, SOCK_STREAM, 0), sender = socket(AF_INET, SOCK_STREAM, 0), receiver = -1;
		bind(listener, (struct sockaddr *)&end, len);
		listen(listener, 1);
		getsockname(listener, (struct sockaddr *)&end, &len);
		// Fails while it is not registered.
		if (setsockopt(sender, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name)) == 0 &&
		    connect(sender, (struct sockaddr *)&end, len) == 0) {
			receiver = accept(listener, 0, 0);
			for (int times = 0; times < 100; times++) {
				write(sender, bytes, sizeof(bytes));
				read(receiver, bytes, sizeof(bytes));
			}
		}
		close(listener);
		close(sender);
		close(receiver);
		usleep(1000);
	}
}
